// Audits that need a GPU's streams; skipped without a GPU.
#include <gtest/gtest.h>

#include "case/case_run.h"
#include "device/cuda.h"
#include "tests/case/fake_provider.h"

namespace flashbench {
namespace {

// At least half a millisecond of work, on a stream that time() does not see.
TEST(CudaAudits, WorkOnAnotherStreamFails) {
  if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
  const std::unique_ptr<Device> device = make_cuda_device(0), other = make_cuda_device(0);
  const Buffer buffer = other->allocate(size_t{2} << 30, MemoryUse::workspace);
  Case item;
  item.problem = {.dtype = Dtype::bf16, .q_len = 128, .kv_len = 128, .head_dim = 64};
  CaseRunOptions options;
  options.time = false;

  const FakeProvider honest([](const Inputs&, const Outputs&, int) {}, "honest", DeviceKind::cuda);
  const FakeProvider sly(
      [&](const Inputs&, const Outputs&, int) { other->poison(buffer.data(), buffer.bytes()); },
      "sly", DeviceKind::cuda);
  const std::vector<Record> records = run_case(item, {&honest, &sly}, *device, nullptr, options);
  EXPECT_EQ(records[0].status, Status::ok) << records[0].reason;
  EXPECT_EQ(records[1].status, Status::failed);
  EXPECT_NE(records[1].reason.find("work on another stream"), std::string::npos)
      << records[1].reason;
}

}  // namespace
}  // namespace flashbench
