// The rules by which the tests of other projects accept 16-bit outputs of an attention kernel,
// reimplemented from their sources to see which defects they catch. docs/verifying.md compares them
// with lambda.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/enum_names.h"
#include "attention/problem.h"

namespace flashbench::verify {

// One output tensor: three versions of the same elements, in the same order.
struct ComparedTensor {
  std::string tensor;  // "o", "dq", "dk" or "dv"
  Dtype dtype = Dtype::fp16;
  std::vector<float> found;
  std::vector<double> exact;  // unrounded
  std::vector<float> eager;   // computed in the dtype (eager.h)
};

enum class Criterion {
  flash_attention_2,  // max error <= 2 (gradients 3) times that of eager, both against the exact
                      // result rounded to the dtype; tests/test_flash_attn.py
  flash_attention_3,  // the same with 2, plus twice what adding and subtracting 0.3 does to the
                      // exact result in the dtype; hopper/test_flash_attn.py
  cudnn_frontend,     // |error| <= 2e-2 + 2e-2 |exact|; bf16 dK and dV 7e-2 + 2e-2 |exact|;
                      // test/python/sdpa/fp16.py, helpers.py
  cutlass_88,         // max error < 1e-2, ignoring NaN, and mean error < 1e-3;
                      // examples/88_hopper_fmha
  flashinfer,         // |error| <= t + t |exact|, t = 1e-3 for fp16, 1e-2 for bf16; has no
                      // gradients; tests/
  pytorch,            // |error| <= a + r |exact|, a and r the largest absolute and relative error
                      // of eager, but at least 1e-3 and 1e-3 (bf16 1.6e-2);
                      // test/test_transformers.py get_tolerances, fudge factor 1
};

}  // namespace flashbench::verify

namespace flashbench {

template <>
inline constexpr auto kNames<verify::Criterion> =
    names_of<verify::Criterion>({{verify::Criterion::flash_attention_2, "flash_attention_2"},
                                 {verify::Criterion::flash_attention_3, "flash_attention_3"},
                                 {verify::Criterion::cudnn_frontend, "cudnn_frontend"},
                                 {verify::Criterion::cutlass_88, "cutlass_88"},
                                 {verify::Criterion::flashinfer, "flashinfer"},
                                 {verify::Criterion::pytorch, "pytorch"}});

}  // namespace flashbench

namespace flashbench::verify {

inline constexpr auto kCriteria = values_of<Criterion>();

// Empty if the criterion has no rule for the tensor.
std::optional<bool> accepts(Criterion, const ComparedTensor&);

}  // namespace flashbench::verify
