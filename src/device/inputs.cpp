#include "device/inputs.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <numbers>
#include <utility>

#include "attention/error.h"
#include "attention/half.h"
#include "device/npy.h"
#include "device/padding.h"
#include "device/patterns.h"
#include "device/split_mix.h"

namespace flashbench {

namespace {

constexpr double kOutlierProbability = 0.001;
constexpr double kOutlierDeviation = 10.0;

// Returns 64 random bits: element `index` of the stream identified by `seed` and `stream`.
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  constexpr uint64_t kGamma = kSplitMixIncrement;
  const uint64_t start = split_mix(split_mix(seed + kGamma) + (stream + 1) * kGamma);
  return split_mix(start + (index + 1) * kGamma);
}

// Box-Muller transform of the two halves of `bits`.
double normal(uint64_t bits) {
  const double u1 = (static_cast<double>(bits >> 32) + 1.0) * 0x1p-32;  // (0, 1]
  const double u2 = static_cast<double>(bits & 0xffffffff) * 0x1p-32;   // [0, 1)
  return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
}

// [0, 1)
double unit(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

size_t bytes_of(ConstTensorView view) {
  return static_cast<size_t>(view.elements() * element_size(view.dtype));
}

// The rows of each request in tensor number `tensor`; null where lengths are equal.
const RequestRows* rows_of(const Problem& p, int tensor) {
  if (!p.lengths) return nullptr;
  const bool keys = tensor == 1 || tensor == 2;
  return keys ? &p.lengths->keys() : &p.lengths->queries();
}

// Calls body(batch, row, index of the row's first element) for each row, in parallel. Padding has
// no index, so that each layout holds the same values.
template <typename Body>
void for_rows(const Problem& p, const TensorView& view, int tensor, ThreadPool& pool,
              const Body& body) {
  const RequestRows* rows = rows_of(p, tensor);
  const int64_t count = rows == nullptr ? view.all_rows() : rows->total();
  pool.parallel_for(count, [&](int64_t item, int) {
    const int64_t b = rows == nullptr ? item / view.length : rows->request_of(item);
    const int64_t row = rows == nullptr ? item % view.length : item - rows->first(b);
    body(b, row, static_cast<uint64_t>(item * view.heads * view.head_dim));
  });
}

void fill_pattern(const Problem& p, TensorView view, const InputSpec& spec, int tensor,
                  ThreadPool& pool) {
  for_rows(p, view, tensor, pool, [&](int64_t b, int64_t row, uint64_t index) {
    for (int64_t h = 0; h < view.heads; ++h) {
      fill_pattern_row(p, spec.distribution, spec.seed, tensor, b, h, row, index, view);
      index += static_cast<uint64_t>(view.head_dim);
    }
  });
}

using Bytes = HostVector<std::byte>;

// A random tensor whose elements are stored in index order: it depends on its number of elements,
// and on nothing else of the problem's shape. Successive cases often need the same tensor, and
// making it takes longer than running attention on it.
struct RandomTensor {
  Distribution distribution;
  uint64_t seed;
  Dtype dtype;
  std::shared_ptr<const Bytes> bytes;
};

class RandomTensors {
 public:
  // Returns the last tensor made with this number, if it is the same.
  std::shared_ptr<const Bytes> find(const InputSpec& spec, int tensor, Dtype dtype, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const RandomTensor& last = last_[static_cast<size_t>(tensor)];
    const bool same = last.bytes != nullptr && last.distribution == spec.distribution &&
                      last.seed == spec.seed && last.dtype == dtype && last.bytes->size() == bytes;
    return same ? last.bytes : nullptr;
  }
  void keep(const InputSpec& spec, int tensor, Dtype dtype, std::shared_ptr<const Bytes> bytes) {
    if (bytes->size() > kMostKept) return;
    const std::lock_guard lock(mutex_);
    last_[static_cast<size_t>(tensor)] = {spec.distribution, spec.seed, dtype, std::move(bytes)};
  }

 private:
  static constexpr size_t kMostKept = size_t{128} << 20;

  std::mutex mutex_;
  std::array<RandomTensor, 4> last_{};  // by tensor number
};

RandomTensors& random_tensors() {
  static RandomTensors tensors;
  return tensors;
}

void fill_random(const Problem& p, TensorView view, const InputSpec& spec, int tensor,
                 ThreadPool& pool) {
  for_rows(p, view, tensor, pool, [&](int64_t b, int64_t row, uint64_t index) {
    for (int64_t h = 0; h < view.heads; ++h) {
      for (int64_t column = 0; column < view.head_dim; ++column) {
        store_element(view.data, view.dtype, view.offset(b, h, row) + column,
                      random_value(spec.distribution, spec.seed, tensor, index++));
      }
    }
  });
}

void fill_from_file(TensorView view, Layout layout, const std::string& path) {
  const NpyArray array = read_npy(path);
  const std::vector<int64_t> expected = shape_in(layout, view);
  if (array.shape != expected) {
    throw BadInput(fmt::format("{}: expected shape [{}] ({}), found [{}]", path,
                               fmt::join(expected, ", "), name(layout),
                               fmt::join(array.shape, ", ")));
  }
  if (array.type != npy_type(view.dtype)) {
    throw BadInput(fmt::format("{}: expected {} for dtype {}, found {}", path,
                               name(npy_type(view.dtype)), name(view.dtype), name(array.type)));
  }
  if (!array.data.empty()) std::memcpy(view.data, array.data.data(), array.data.size());
}

// Makes the tensor with this number; `shape` is a view of it without data.
std::shared_ptr<const Bytes> filled(TensorView shape, const Problem& problem, const InputSpec& spec,
                                    int tensor, const std::string& path, ThreadPool& pool) {
  const bool random = spec.distribution != Distribution::files && !is_pattern(spec.distribution);
  const bool in_order = random && problem.layout != Layout::bhsd && !problem.is_padded();
  if (in_order) {
    auto kept = random_tensors().find(spec, tensor, shape.dtype, bytes_of(shape));
    if (kept != nullptr) return kept;
  }
  auto bytes = std::make_shared<Bytes>(bytes_of(shape));
  shape.data = bytes->data();
  if (random) {
    fill_random(problem, shape, spec, tensor, pool);
  } else if (spec.distribution == Distribution::files) {
    fill_from_file(shape, problem.layout, path);
  } else {
    fill_pattern(problem, shape, spec, tensor, pool);
  }
  if (problem.is_padded()) poison_padding(shape, *rows_of(problem, tensor));
  if (in_order) random_tensors().keep(spec, tensor, shape.dtype, bytes);
  return bytes;
}

}  // namespace

std::vector<int64_t> shape_in(Layout layout, const ConstTensorView& t) {
  switch (layout) {
    case Layout::bshd:
      return {t.batch, t.length, t.heads, t.head_dim};
    case Layout::bhsd:
      return {t.batch, t.heads, t.length, t.head_dim};
    case Layout::ragged:
      return {t.all_rows(), t.heads, t.head_dim};
  }
  throw std::logic_error("no such layout");
}

std::string InputSpec::id() const {
  if (distribution == Distribution::files) return fmt::format("files/{},{},{},{}", q, k, v, d_o);
  return fmt::format("{}/seed{}", name(distribution), seed);
}

float random_value(Distribution distribution, uint64_t seed, int tensor, uint64_t index) {
  const auto stream = static_cast<uint64_t>(tensor);
  const uint64_t bits = random_bits(seed, stream, index);
  switch (distribution) {
    case Distribution::uniform:
      return static_cast<float>(2.0 * unit(bits) - 1.0);
    case Distribution::outliers: {
      double value = normal(bits);
      if (unit(random_bits(seed, stream + 4, index)) < kOutlierProbability) {
        value += kOutlierDeviation * normal(random_bits(seed, stream + 8, index));
      }
      return static_cast<float>(value);
    }
    default:
      break;
  }
  return static_cast<float>(normal(bits));
}

HostTensors::HostTensors(const Problem& problem, const InputSpec& spec, ThreadPool& pool)
    : problem_(problem) {
  const TensorView output = output_view<void>(nullptr, problem);
  q_ = filled(query_view<void>(nullptr, problem), problem, spec, 0, spec.q, pool);
  k_ = filled(key_view<void>(nullptr, problem), problem, spec, 1, spec.k, pool);
  v_ = filled(value_view<void>(nullptr, problem), problem, spec, 2, spec.v, pool);
  if (problem.pass == Pass::backward) {
    d_o_ = filled(output, problem, spec, 3, spec.d_o, pool);
    o_.resize(bytes_of(output));
    logsumexp_.resize(static_cast<size_t>(problem.query_rows()));
    if (problem.is_padded()) {
      poison_padding(mutable_o(), problem.lengths->queries());
      poison_padding(logsumexp_view<void>(logsumexp_.data(), problem), problem.lengths->queries());
    }
  }
}

Inputs HostTensors::inputs() const {
  Inputs inputs;
  inputs.q = query_view<const void>(q_->data(), problem_);
  inputs.k = key_view<const void>(k_->data(), problem_);
  inputs.v = value_view<const void>(v_->data(), problem_);
  if (problem_.pass == Pass::backward) {
    inputs.o = output_view<const void>(o_.data(), problem_);
    inputs.d_o = output_view<const void>(d_o_->data(), problem_);
    inputs.logsumexp = logsumexp_.data();
  }
  return inputs;
}

TensorView HostTensors::mutable_o() {
  return output_view<void>(o_.data(), problem_);
}

}  // namespace flashbench
