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

void fill_pattern(const Problem& p, TensorView view, const InputSpec& spec, int tensor,
                  ThreadPool& pool) {
  pool.parallel_for(view.batch * view.length, [&](int64_t item, int) {
    const int64_t b = item / view.length, row = item % view.length;
    for (int64_t h = 0; h < view.heads; ++h) {
      const auto index = static_cast<uint64_t>((item * view.heads + h) * view.head_dim);
      fill_pattern_row(p, spec.distribution, spec.seed, tensor, b, h, row, index, view);
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

void fill_random(TensorView view, const InputSpec& spec, int tensor, ThreadPool& pool) {
  pool.parallel_for(view.batch * view.length, [&](int64_t item, int) {
    const int64_t b = item / view.length, row = item % view.length;
    auto index = static_cast<uint64_t>(item * view.heads * view.head_dim);
    for (int64_t h = 0; h < view.heads; ++h) {
      for (int64_t column = 0; column < view.head_dim; ++column) {
        store_element(view.data, view.dtype, view.offset(b, h, row) + column,
                      random_value(spec.distribution, spec.seed, tensor, index++));
      }
    }
  });
}

std::string_view type_name(NpyArray::Type type) {
  switch (type) {
    case NpyArray::Type::float32:
      return "float32";
    case NpyArray::Type::float16:
      return "float16";
    case NpyArray::Type::uint16:
      return "uint16";
  }
  return "?";
}

void fill_from_file(TensorView view, Layout layout, const std::string& path) {
  const NpyArray array = read_npy(path);
  const bool bshd = layout == Layout::bshd;
  const std::vector<int64_t> expected{view.batch, bshd ? view.length : view.heads,
                                      bshd ? view.heads : view.length, view.head_dim};
  if (array.shape != expected) {
    throw BadInput(fmt::format("{}: expected shape [{}] ({}), found [{}]", path,
                               fmt::join(expected, ", "), name(layout),
                               fmt::join(array.shape, ", ")));
  }
  if (array.type != npy_type(view.dtype)) {
    throw BadInput(fmt::format("{}: expected {} for dtype {}, found {}", path,
                               type_name(npy_type(view.dtype)), name(view.dtype),
                               type_name(array.type)));
  }
  std::memcpy(view.data, array.data.data(), array.data.size());
}

// Makes the tensor with this number; `shape` is a view of it without data.
std::shared_ptr<const Bytes> filled(TensorView shape, const Problem& problem, const InputSpec& spec,
                                    int tensor, const std::string& path, ThreadPool& pool) {
  const bool random = spec.distribution != Distribution::files && !is_pattern(spec.distribution);
  const bool in_order = random && problem.layout == Layout::bshd;
  if (in_order) {
    auto kept = random_tensors().find(spec, tensor, shape.dtype, bytes_of(shape));
    if (kept != nullptr) return kept;
  }
  auto bytes = std::make_shared<Bytes>(bytes_of(shape));
  shape.data = bytes->data();
  if (random) {
    fill_random(shape, spec, tensor, pool);
  } else if (spec.distribution == Distribution::files) {
    fill_from_file(shape, problem.layout, path);
  } else {
    fill_pattern(problem, shape, spec, tensor, pool);
  }
  if (in_order) random_tensors().keep(spec, tensor, shape.dtype, bytes);
  return bytes;
}

}  // namespace

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
