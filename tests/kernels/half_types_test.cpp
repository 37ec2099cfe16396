// What kernels for 16-bit floats have for each dtype.
#include "kernels/common/half_types.h"

#include <gtest/gtest.h>

namespace flashbench::kernels {
namespace {

TEST(HalfTypes, TakeTheirOwn) {
  EXPECT_EQ(for_half(Dtype::fp16, 1, 2), 1);
  EXPECT_EQ(for_half(Dtype::bf16, 1, 2), 2);
}

TEST(HalfTypes, RefuseEveryOther) {
  for (const Dtype dtype : kDtypes) {
    if (dtype == Dtype::fp16 || dtype == Dtype::bf16) {
      EXPECT_EQ(why_not_half(dtype), std::nullopt);
    } else {
      EXPECT_EQ(why_not_half(dtype),
                "tensor cores take fp16 and bf16, not " + std::string(name(dtype)));
      EXPECT_THROW(for_half(dtype, 1, 2), std::logic_error);
    }
  }
}

}  // namespace
}  // namespace flashbench::kernels
