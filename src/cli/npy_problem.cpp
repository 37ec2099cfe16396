#include "cli/npy_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "attention/error.h"
#include "files/npy.h"
#include "plan/lengths.h"

namespace flashbench {

namespace {

struct Shape {
  Dtype dtype;
  int64_t batch, length, heads, head_dim;  // ragged: all tokens are one length
};

// `called`: the name of the layout in messages.
Shape read_shape(const std::string& path, Layout layout, std::string_view called) {
  const NpyArray array = read_npy(path);
  const size_t dimensions = layout == Layout::ragged ? 3 : 4;
  if (array.shape.size() != dimensions) {
    throw BadInput(fmt::format("{}: expected {} dimensions ({}), found {}", path, dimensions,
                               called, array.shape.size()));
  }
  const auto dtype = dtype_of(array.type);
  if (!dtype) {
    throw BadInput(fmt::format("{}: expected float32, float16 or uint16 (bits of bf16), found {}",
                               path, name(array.type)));
  }
  const auto& s = array.shape;
  switch (layout) {
    case Layout::bshd:
      return {*dtype, s[0], s[1], s[2], s[3]};
    case Layout::bhsd:
      return {*dtype, s[0], s[2], s[1], s[3]};
    case Layout::ragged:
      return {*dtype, 1, s[0], s[1], s[2]};
  }
  throw std::logic_error("no such layout");
}

// The lengths say how many requests and tokens there are.
void require_lengths(const std::string& path, const Problem& p, const Shape& shape,
                     const RequestRows& rows) {
  if (p.is_ragged() && shape.length != rows.total()) {
    throw BadInput(fmt::format("{}: expected {} tokens, the sum of the lengths, found {}", path,
                               rows.total(), shape.length));
  }
  if (p.is_padded() && (shape.batch != rows.requests() || shape.length != rows.longest())) {
    throw BadInput(
        fmt::format("{}: expected {} requests padded to the longest, {}, found {} padded to {}",
                    path, rows.requests(), rows.longest(), shape.batch, shape.length));
  }
}

// A pool of K gives the number of pages and their size; kv_len stays as it is.
void take_pool(Problem& p, const std::string& path) {
  const Shape pool = read_shape(path, p.pool_layout(), name(p.kv_layout));
  const int64_t pages = pool.batch, page_size = pool.length;
  const int64_t pages_said = p.block_table->pages();
  if (pages_said != 0 && pages_said != pages) {
    throw BadInput(fmt::format("{}: expected a pool of {} pages, as block_table says, found {}",
                               path, pages_said, pages));
  }
  if (p.page_size.value_or(page_size) != page_size) {
    throw BadInput(fmt::format("{}: expected pages of {} rows, as page_size says, found {}", path,
                               *p.page_size, page_size));
  }
  p.page_size = page_size;
  p.block_table = std::make_shared<const BlockTable>(p.block_table->in_pool_of(pages));
}

RequestRows read_starts(const std::string& path) {
  const NpyArray array = read_npy(path);
  if (array.type != NpyArray::Type::int32 || array.shape.size() != 1 || array.shape[0] < 2) {
    throw BadInput(
        fmt::format("{}: expected int32 of one dimension, 0 and then where each request ends, "
                    "found {} of shape ({})",
                    path, name(array.type), fmt::join(array.shape, ", ")));
  }
  std::vector<int32_t> starts(static_cast<size_t>(array.shape[0]));
  std::memcpy(starts.data(), array.data.data(), array.data.size());
  if (starts[0] != 0) {
    throw BadInput(fmt::format("{}: element 0: expected 0, found {}", path, starts[0]));
  }
  std::vector<int64_t> counts;
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] < starts[i - 1]) {
      throw BadInput(fmt::format("{}: element {}: expected at least the one before, {}, found {}",
                                 path, i, starts[i - 1], starts[i]));
    }
    counts.push_back(starts[i] - starts[i - 1]);
  }
  return RequestRows(counts);
}

}  // namespace

void take_shapes(Problem& problem, const InputSpec& files) {
  if (problem.block_table) take_pool(problem, files.k);
  const std::string_view keys_called =
      problem.is_paged() ? name(problem.kv_layout) : name(problem.layout);
  const Shape q = read_shape(files.q, problem.layout, name(problem.layout));
  const Shape k = read_shape(files.k, problem.key_layout(), keys_called);
  problem.dtype = q.dtype;
  problem.q_heads = q.heads;
  problem.head_dim = q.head_dim;
  problem.kv_heads = k.heads;
  problem.set_value_dim(read_shape(files.v, problem.key_layout(), keys_called).head_dim);
  if (problem.lengths) {
    require_lengths(files.q, problem, q, problem.lengths->queries());
  } else {
    problem.batch = q.batch;
    problem.q_len = q.length;
  }
  if (!problem.is_paged()) {
    if (problem.lengths) {
      require_lengths(files.k, problem, k, problem.lengths->keys());
    } else {
      problem.kv_len = k.length;
    }
  }
  if (const auto wrong = problem.invalid()) {
    throw BadInput(fmt::format("{}, {}, {}: {}", files.q, files.k, files.v, *wrong));
  }
}

std::shared_ptr<const Lengths> read_cu_seqlens(const std::string& q_path,
                                               const std::string& k_path) {
  const RequestRows queries = read_starts(q_path), keys = read_starts(k_path);
  if (queries.requests() != keys.requests()) {
    throw BadInput(fmt::format("{}: expected {} requests, as {} has, found {}", k_path,
                               queries.requests(), q_path, keys.requests()));
  }
  std::vector<RequestLengths> requests;
  for (int64_t b = 0; b < queries.requests(); ++b) {
    requests.push_back({queries.count(b), keys.count(b)});
  }
  try {
    return make_lengths(requests);
  } catch (const std::invalid_argument& error) {
    throw BadInput(fmt::format("{}: {}", q_path, error.what()));
  }
}

}  // namespace flashbench
