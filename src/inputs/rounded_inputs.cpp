#include "inputs/rounded_inputs.h"

#include <cstddef>
#include <span>

#include "attention/half.h"
#include "inputs/hadamard.h"

namespace flashbench {

namespace {

// A problem whose bytes have the factors of the recipe.
Problem of_bytes(const Problem& p) {
  Problem bytes = p;
  bytes.dtype = Dtype::e4m3;
  bytes.descale = recipe_of(p.quantize).descale;
  bytes.quantize = Quantize::none;
  bytes.layout = Layout::bhsd;
  return bytes;
}

void load_row(const ConstTensorView& t, int64_t b, int64_t h, int64_t row, float* to) {
  const int64_t at = t.offset(b, h, row);
  for (int64_t c = 0; c < t.head_dim; ++c) to[c] = load_element(t.data, t.dtype, at + c);
}

// The mean of each column of a head over its rows.
void mean_of_rows(const ConstTensorView& t, float* mean, ThreadPool& pool) {
  pool.parallel_for(t.batch * t.heads, [&](int64_t item, int) {
    std::vector<double> sum(static_cast<size_t>(t.head_dim));
    std::vector<float> values(sum.size());
    for (int64_t row = 0; row < t.length; ++row) {
      load_row(t, item / t.heads, item % t.heads, row, values.data());
      for (size_t c = 0; c < sum.size(); ++c) sum[c] += static_cast<double>(values[c]);
    }
    for (size_t c = 0; c < sum.size(); ++c) {
      mean[static_cast<size_t>(item) * sum.size() + c] =
          static_cast<float>(sum[c] / static_cast<double>(t.length));
    }
  });
}

}  // namespace

struct RoundedInputs::Parts {
  // Takes pieces of memory, the widest elements first; counts them where there is none.
  class Carver {
   public:
    explicit Carver(void* memory) : at_(static_cast<std::byte*>(memory)) {}

    template <typename T>
    T* take(int64_t count) {
      const size_t bytes = static_cast<size_t>(count) * sizeof(T);
      T* piece = at_ == nullptr ? nullptr : reinterpret_cast<T*>(at_ + taken_);
      taken_ += bytes;
      return piece;
    }
    size_t taken() const { return taken_; }

   private:
    std::byte* at_;
    size_t taken_ = 0;
  };

  Parts(const Problem& asked, void* memory) : carver(memory) {
    const Problem p = of_bytes(asked);
    q_descales = carver.take<float>(p.query_descales());
    k_descales = carver.take<float>(p.key_descales());
    v_descales = carver.take<float>(p.key_descales());
    if (recipe_of(asked.quantize).smooth_k) {
      k_mean = carver.take<float>(p.batch * p.kv_heads * p.head_dim);
    }
    q = carver.take<uint8_t>(p.query_elements());
    k = carver.take<uint8_t>(p.key_elements());
    v = carver.take<uint8_t>(p.value_elements());
  }

  Carver carver;
  float *q_descales, *k_descales, *v_descales, *k_mean = nullptr;
  uint8_t *q, *k, *v;
};

size_t RoundedInputs::memory_bytes(const Problem& p) {
  return Parts(p, nullptr).carver.taken();
}

RoundedInputs::RoundedInputs(const Problem& p, void* memory)
    : problem_(p), recipe_(recipe_of(p.quantize)) {
  const Parts parts(p, memory);
  q_bytes_ = parts.q;
  k_bytes_ = parts.k;
  v_bytes_ = parts.v;
  q_descales_ = parts.q_descales;
  k_descales_ = parts.k_descales;
  v_descales_ = parts.v_descales;
  k_mean_ = parts.k_mean;
  const Problem bytes = of_bytes(p);
  q_ = query_view<const void>(q_bytes_, bytes);
  k_ = key_view<const void>(k_bytes_, bytes);
  v_ = value_view<const void>(v_bytes_, bytes);
  q_.descales = query_descales_view(q_descales_, bytes);
  k_.descales = key_descales_view(k_descales_, bytes);
  v_.descales = key_descales_view(v_descales_, bytes);
}

void RoundedInputs::round(const Inputs& in, ThreadPool& pool) {
  if (k_mean_ != nullptr) mean_of_rows(in.k, k_mean_, pool);
  const auto rotated = [this](float* row) {
    if (recipe_.hadamard) rotate(std::span(row, static_cast<size_t>(problem_.head_dim)));
  };
  const auto round_tensor = [&](const RowSource& rows, const ConstTensorView& bytes, uint8_t* data,
                                float* descales, ByteFormat format) {
    TensorView to = dense_view<void>(data, Dtype::e4m3, Layout::bhsd, bytes.batch, bytes.heads,
                                     bytes.length, bytes.head_dim);
    to.descales = bytes.descales;
    quantize(rows, format, to, descales, pool);
  };
  round_tensor(
      [&](int64_t b, int64_t h, int64_t row, float* to) {
        load_row(in.q, b, h, row, to);
        rotated(to);
      },
      q_, q_bytes_, q_descales_, qk_format());
  round_tensor(
      [&](int64_t b, int64_t h, int64_t row, float* to) {
        load_row(in.k, b, h, row, to);
        if (k_mean_ != nullptr) {
          const float* mean = k_mean_ + (b * problem_.kv_heads + h) * problem_.head_dim;
          for (int64_t c = 0; c < problem_.head_dim; ++c) to[c] -= mean[c];
        }
        rotated(to);
      },
      k_, k_bytes_, k_descales_, qk_format());
  round_tensor([&](int64_t b, int64_t h, int64_t row, float* to) { load_row(in.v, b, h, row, to); },
               v_, v_bytes_, v_descales_, ByteFormat::e4m3);
}

float RoundedInputs::score_factor() const {
  return recipe_.hadamard ? 1 / static_cast<float>(problem_.head_dim) : 1;
}

double RoundedInputs::logsumexp_shift(const ConstTensorView& q, int64_t b, int64_t h,
                                      int64_t row) const {
  if (k_mean_ == nullptr) return 0;
  const int64_t kv_head = h / problem_.heads_per_kv_head();
  const float* mean = k_mean_ + (b * problem_.kv_heads + kv_head) * problem_.head_dim;
  const int64_t at = q.offset(b, h, row);
  double sum = 0;
  for (int64_t c = 0; c < problem_.head_dim; ++c) {
    sum +=
        static_cast<double>(load_element(q.data, q.dtype, at + c)) * static_cast<double>(mean[c]);
  }
  return problem_.softmax_scale() * sum;
}

std::vector<float> dequantize(const ConstTensorView& t, ByteFormat format, float factor,
                              ThreadPool& pool) {
  std::vector<float> values(static_cast<size_t>(t.elements()));
  pool.parallel_for(t.batch * t.heads, [&](int64_t item, int) {
    const int64_t b = item / t.heads, h = item % t.heads;
    for (int64_t row = 0; row < t.length; ++row) {
      const int64_t at = t.offset(b, h, row);
      const float scale = t.descales.at(b, h, row) * factor;
      for (int64_t c = 0; c < t.head_dim; ++c) {
        values[static_cast<size_t>(at + c)] =
            decode(format, static_cast<const uint8_t*>(t.data)[at + c]) * scale;
      }
    }
  });
  return values;
}

}  // namespace flashbench
