#include "mutants/criteria.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/half.h"

namespace flashbench::verify {

namespace {

bool is_gradient(const ComparedTensor& compared) {
  return compared.tensor != "o";
}

// The largest of |a(i)|, NaN if any is.
template <typename Value>
double max_abs(size_t count, const Value& value) {
  double max = 0;
  for (size_t i = 0; i < count; ++i) {
    const double magnitude = std::abs(value(i));
    if (std::isnan(magnitude)) return magnitude;
    max = std::max(max, magnitude);
  }
  return max;
}

double rounded(const ComparedTensor& compared, double value) {
  return static_cast<double>(round_to(compared.dtype, static_cast<float>(value)));
}

// A NaN on either side makes these comparisons false, which rejects.
bool flash_attention(const ComparedTensor& compared, double factor, double allowance) {
  const size_t count = compared.found.size();
  const double found = max_abs(count, [&](size_t i) {
    return static_cast<double>(compared.found[i]) - rounded(compared, compared.exact[i]);
  });
  const double eager = max_abs(count, [&](size_t i) {
    return static_cast<double>(compared.eager[i]) - rounded(compared, compared.exact[i]);
  });
  return found <= factor * eager + allowance;
}

// The change of the rounded result when 0.3 is added and subtracted in the dtype.
double lost_beside_0_3(const ComparedTensor& compared) {
  constexpr double kAddend = 0.3;
  return max_abs(compared.exact.size(), [&](size_t i) {
    const double reference = rounded(compared, compared.exact[i]);
    return rounded(compared, rounded(compared, reference + kAddend) - kAddend) - reference;
  });
}

bool all_close(const ComparedTensor& compared, double absolute, double relative) {
  for (size_t i = 0; i < compared.found.size(); ++i) {
    const double error = std::abs(static_cast<double>(compared.found[i]) - compared.exact[i]);
    if (!(error <= absolute + relative * std::abs(compared.exact[i]))) return false;
  }
  return true;
}

bool cutlass(const ComparedTensor& compared) {
  double max = 0, sum = 0;
  for (size_t i = 0; i < compared.found.size(); ++i) {
    const double error = std::abs(static_cast<double>(compared.found[i]) - compared.exact[i]);
    max = std::fmax(max, error);
    sum += error;
  }
  return max < 1e-2 && sum / static_cast<double>(compared.found.size()) < 1e-3;
}

bool pytorch(const ComparedTensor& compared) {
  constexpr double kMeaningless = 1e30;  // upper limit of the relative tolerance
  const double least_relative = compared.dtype == Dtype::bf16 ? 1.6e-2 : 1e-3;
  double absolute = 1e-3, relative = least_relative;
  for (size_t i = 0; i < compared.eager.size(); ++i) {
    const double error = std::abs(static_cast<double>(compared.eager[i]) - compared.exact[i]);
    absolute = std::max(absolute, error);
    if (error != 0) relative = std::max(relative, error / std::abs(compared.exact[i]));
  }
  return all_close(compared, absolute, relative > kMeaningless ? least_relative : relative);
}

}  // namespace

std::optional<bool> accepts(Criterion criterion, const ComparedTensor& compared) {
  const bool bf16 = compared.dtype == Dtype::bf16;
  switch (criterion) {
    case Criterion::flash_attention_2:
      return flash_attention(compared, is_gradient(compared) ? 3 : 2, 0);
    case Criterion::flash_attention_3:
      return flash_attention(compared, 2, 2 * lost_beside_0_3(compared));
    case Criterion::cudnn_frontend: {
      const bool key_gradient = compared.tensor == "dk" || compared.tensor == "dv";
      return all_close(compared, bf16 && key_gradient ? 7e-2 : 2e-2, 2e-2);
    }
    case Criterion::cutlass_88:
      return cutlass(compared);
    case Criterion::flashinfer: {
      if (is_gradient(compared)) return std::nullopt;
      const double tolerance = bf16 ? 1e-2 : 1e-3;
      return all_close(compared, tolerance, tolerance);
    }
    case Criterion::pytorch:
      return pytorch(compared);
  }
  return std::nullopt;
}

}  // namespace flashbench::verify
