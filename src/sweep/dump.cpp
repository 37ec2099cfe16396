#include "sweep/dump.h"

#include <array>

#include "device/atomic_file.h"
#include "device/npy.h"

namespace flashbench {

namespace {

void write_tensor(const std::filesystem::path& path, ConstTensorView t, Layout layout) {
  const bool bshd = layout == Layout::bshd;
  const std::array<int64_t, 4> shape{t.batch, bshd ? t.length : t.heads, bshd ? t.heads : t.length,
                                     t.head_dim};
  write_npy(path, npy_type(t.dtype), shape, t.data);
}

void write_logsumexp(const std::filesystem::path& path, const float* logsumexp, const Problem& p) {
  const std::array<int64_t, 3> shape{p.batch, p.q_heads, p.q_len};
  write_npy(path, NpyArray::Type::float32, shape, logsumexp);
}

}  // namespace

void dump_inputs(const std::filesystem::path& folder, const Problem& p, const Inputs& inputs) {
  make_folder(folder);
  write_tensor(folder / "q.npy", inputs.q, p.layout);
  write_tensor(folder / "k.npy", inputs.k, p.layout);
  write_tensor(folder / "v.npy", inputs.v, p.layout);
  if (p.pass == Pass::backward) write_tensor(folder / "do.npy", inputs.d_o, p.layout);
}

void dump_outputs(const std::filesystem::path& folder, const Problem& p, const Outputs& outputs) {
  make_folder(folder);
  if (p.pass == Pass::forward) {
    write_tensor(folder / "o.npy", outputs.o, p.layout);
    if (outputs.logsumexp != nullptr) {
      write_logsumexp(folder / "logsumexp.npy", outputs.logsumexp, p);
    }
  } else {
    write_tensor(folder / "dq.npy", outputs.dq, p.layout);
    write_tensor(folder / "dk.npy", outputs.dk, p.layout);
    write_tensor(folder / "dv.npy", outputs.dv, p.layout);
  }
}

}  // namespace flashbench
