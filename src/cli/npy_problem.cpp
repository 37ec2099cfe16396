#include "cli/npy_problem.h"

#include <fmt/format.h>

#include "attention/error.h"
#include "device/npy.h"

namespace flashbench {

namespace {

struct Shape {
  Dtype dtype;
  int64_t batch, length, heads, head_dim;
};

Shape read_shape(const std::string& path, Layout layout) {
  const NpyArray array = read_npy(path);
  if (array.shape.size() != 4) {
    throw BadInput(fmt::format("{}: expected 4 dimensions ({}), found {}", path, name(layout),
                               array.shape.size()));
  }
  const auto& s = array.shape;
  const bool bshd = layout == Layout::bshd;
  return {dtype_of(array.type), s[0], bshd ? s[1] : s[2], bshd ? s[2] : s[1], s[3]};
}

}  // namespace

void take_shapes(Problem& problem, const InputSpec& files) {
  const Shape q = read_shape(files.q, problem.layout);
  const Shape k = read_shape(files.k, problem.layout);
  problem.dtype = q.dtype;
  problem.batch = q.batch;
  problem.q_heads = q.heads;
  problem.q_len = q.length;
  problem.head_dim = q.head_dim;
  problem.kv_heads = k.heads;
  problem.kv_len = k.length;
  problem.set_value_dim(read_shape(files.v, problem.layout).head_dim);
  if (const auto wrong = problem.invalid()) {
    throw BadInput(fmt::format("{}, {}, {}: {}", files.q, files.k, files.v, *wrong));
  }
}

}  // namespace flashbench
