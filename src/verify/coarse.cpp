#include "verify/coarse.h"

#include <fmt/format.h>

namespace flashbench {

namespace {

// In root mean squares, correct kernels reach about 0.4 of the error that rounding explains.
constexpr double kMostOverExplained = 2;

bool is_remarkable(const TensorError& error, Dtype dtype) {
  return error.rel_rms_err && *error.rel_rms_err > unremarkable_rel_rms(dtype);
}

bool is_coarse(const TensorError& error, Dtype dtype) {
  return is_remarkable(error, dtype) &&
         *error.rel_rms_err > kMostOverExplained * *error.rel_rms_explained;
}

}  // namespace

double unremarkable_rel_rms(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return 0.01;
    case Dtype::fp16:
      return 0.05;
    case Dtype::bf16:
    case Dtype::e4m3:
      return 0.10;
  }
  return 0;
}

bool is_remarkable(const Verdict& verdict, Dtype dtype) {
  for (const TensorError& error : verdict.tensors) {
    if (is_remarkable(error, dtype)) return true;
  }
  return false;
}

std::string why_coarse(const Verdict& verdict, Dtype dtype, const Storage& storage) {
  const TensorError* worst = nullptr;
  for (const TensorError& error : verdict.tensors) {
    if (!is_coarse(error, dtype)) continue;
    if (worst == nullptr || *error.rel_rms_err > *worst->rel_rms_err) worst = &error;
  }
  if (worst == nullptr) return "";
  std::string why = fmt::format(
      "{} is off by {:.3g}% of its own norm, and rounding with scores in fp32 explains {:.2g}%",
      worst->tensor, 100 * *worst->rel_rms_err, 100 * *worst->rel_rms_explained);
  if (storage.scores != Dtype::fp32) {
    why += fmt::format(": it stores its scores in {}", name(storage.scores));
  }
  if (storage.partials != Dtype::fp32) {
    why += fmt::format(": it stores partial results in {}", name(storage.partials));
  }
  return why;
}

}  // namespace flashbench
