// cuBLAS opens without a GPU if a toolkit is installed; skipped if it is missing.
#include "device/cublas_library.h"

#include <gtest/gtest.h>

namespace flashbench {
namespace {

TEST(CublasLibrary, HasEveryEntryPoint) {
  if (const auto why = why_no_cublas()) GTEST_SKIP() << *why;
  const CublasLibrary& library = cublas_library();
  EXPECT_TRUE(library.create && library.destroy && library.set_stream && library.set_workspace &&
              library.set_math_mode && library.get_version && library.gemm_strided_batched &&
              library.gemm_batched && library.dgemm && library.status_string);
  EXPECT_STREQ(library.status_name(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
}

}  // namespace
}  // namespace flashbench
