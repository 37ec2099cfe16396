#include "case/dump.h"

#include <limits>
#include <stdexcept>
#include <vector>

#include "files/atomic_file.h"
#include "files/npy.h"
#include "inputs/inputs.h"

namespace flashbench {

namespace {

void write_tensor(const std::filesystem::path& path, ConstTensorView t, Layout layout) {
  write_npy(path, npy_type(t.dtype), shape_in(layout, t), t.data);
}

// As FlashAttention takes it.
void write_cu_seqlens(const std::filesystem::path& path, const RequestRows& rows) {
  std::vector<int32_t> starts;
  for (const int64_t start : rows.starts()) {
    if (start > std::numeric_limits<int32_t>::max()) {
      throw std::runtime_error(path.string() + ": too many tokens for 32 bits");
    }
    starts.push_back(static_cast<int32_t>(start));
  }
  const std::vector<int64_t> shape{rows.requests() + 1};
  write_npy(path, NpyArray::Type::int32, shape, starts.data());
}

void write_descales(const std::filesystem::path& path, const Descales& descales, int64_t count) {
  const std::vector<int64_t> shape{count};
  write_npy(path, NpyArray::Type::float32, shape, descales.data);
}

void write_block_table(const std::filesystem::path& path, const Problem& p, const int32_t* table) {
  const std::vector<int64_t> shape{p.batch, p.table_width()};
  write_npy(path, NpyArray::Type::int32, shape, table);
}

void write_logsumexp(const std::filesystem::path& path, const float* logsumexp, const Problem& p) {
  const std::vector<int64_t> shape = p.is_ragged()
                                         ? std::vector<int64_t>{p.q_heads, p.q_tokens()}
                                         : std::vector<int64_t>{p.batch, p.q_heads, p.q_len};
  write_npy(path, NpyArray::Type::float32, shape, logsumexp);
}

}  // namespace

void dump_inputs(const std::filesystem::path& folder, const Problem& p, const Inputs& inputs) {
  make_folder(folder);
  write_tensor(folder / "q.npy", inputs.q, p.layout);
  write_tensor(folder / "k.npy", key_view(inputs.k.data, p), p.key_layout());
  write_tensor(folder / "v.npy", value_view(inputs.v.data, p), p.key_layout());
  if (p.is_scaled()) {
    write_descales(folder / "q_descale.npy", inputs.q.descales, p.query_descales());
  }
  if (p.has_scaled_keys()) {
    write_descales(folder / "k_descale.npy", inputs.k.descales, p.key_descales());
    write_descales(folder / "v_descale.npy", inputs.v.descales, p.key_descales());
  }
  if (p.is_paged()) write_block_table(folder / "block_table.npy", p, inputs.k.pages.table);
  if (p.pass == Pass::backward) write_tensor(folder / "do.npy", inputs.d_o, p.layout);
  if (!p.lengths) return;
  write_cu_seqlens(folder / "cu_seqlens_q.npy", p.lengths->queries());
  write_cu_seqlens(folder / "cu_seqlens_k.npy", p.lengths->keys());
}

void dump_outputs(const std::filesystem::path& folder, const Problem& p, const Outputs& outputs) {
  make_folder(folder);
  if (p.pass == Pass::forward) {
    write_tensor(folder / "o.npy", outputs.o, p.layout);
    if (outputs.o.descales.data != nullptr) {
      write_descales(folder / "o_descale.npy", outputs.o.descales, 1);
    }
    if (outputs.logsumexp != nullptr) {
      write_logsumexp(folder / "logsumexp.npy", outputs.logsumexp, p);
    }
  } else {
    write_tensor(folder / "dq.npy", outputs.dq, p.layout);
    write_tensor(folder / "dk.npy", outputs.dk, p.layout);
    write_tensor(folder / "dv.npy", outputs.dv, p.layout);
  }
}

std::vector<std::filesystem::path> files_of_dump(const std::filesystem::path& folder,
                                                 const std::vector<std::string>& providers) {
  std::vector<std::filesystem::path> files;
  for (const char* name : {"q", "k", "v", "do", "q_descale", "k_descale", "v_descale",
                           "block_table", "cu_seqlens_q", "cu_seqlens_k"}) {
    files.push_back(folder / (std::string(name) + ".npy"));
  }
  for (const std::string& provider : providers) {
    for (const char* name : {"o", "o_descale", "logsumexp", "dq", "dk", "dv"}) {
      files.push_back(folder / provider / (std::string(name) + ".npy"));
    }
  }
  return files;
}

}  // namespace flashbench
