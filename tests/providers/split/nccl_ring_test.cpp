// The ring whose ranks hand keys and values on by NCCL: groups of the host's threads, and a fake of
// NCCL that copies between them.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "device/nccl_ranks.h"
#include "providers/split/algorithm.h"
#include "tests/kernels/attention_check.h"
#include "wrapped_group.h"

namespace flashbench {
namespace {

class GroupWithFakeNccl final : public WrappedGroup {
 public:
  GroupWithFakeNccl(std::unique_ptr<DeviceGroup> group, const std::vector<int>& gpus)
      : WrappedGroup(std::move(group)), nccl_(library_, gpus) {}

  int64_t communicate(int rank, const NcclWork& work) override {
    wait(rank, pull(rank, rank, {}, kNoMark));  // the pulls before it
    work(nccl_, stream(rank));
    return pull(rank, rank, {}, kNoMark);
  }

 private:
  const NcclLibrary library_ = open_nccl({FAKE_NCCL});
  NcclRanks nccl_;
};

std::unique_ptr<Session> ring_session(const SplitKind& kind, const Problem& p,
                                      std::unique_ptr<DeviceGroup> group) {
  SplitParts parts{.fp32_outputs = kind.fp32_outputs(p.pass, DeviceKind::cuda),
                   .tokens = TokenSplit::of(p)};
  for (const kernels::AttentionKernel* kernel : kernels::all_kernels()) {
    if (kernel->device == DeviceKind::cpu && kernel->pass == p.pass) parts.kernel = kernel;
  }
  return make_split_session(kind, parts, p, std::move(group));
}

CheckedOutputs outputs_of_ring(Session& session, const RandomInputs& inputs) {
  CheckedOutputs outputs(inputs.problem());
  session.run(inputs.view(), outputs.view());
  return outputs;
}

// Each rank gets the keys of another in the same steps as by pulls, so that all bits are the same.
TEST(NcclRing, ComputesWhatTheRingDoes) {
  const auto device = make_host_device(4);
  int variant = 0;
  for (const Pass pass : kPasses) {
    for (const Mask mask : kMasks) {
      for (const auto& gpus : {std::vector{0, 1}, {0, 1, 2}, {3, 1, 2, 0}}) {
        for (const int64_t length : {1, 2, 5, 7, 8, 24, 97, 200}) {
          Problem p{.pass = pass, .mask = mask, .q_len = length, .kv_len = length};
          ++variant;
          p.dtype = kUnscaledDtypes[static_cast<size_t>(variant % 3)];
          p.layout = variant % 2 == 0 ? Layout::bshd : Layout::bhsd;
          p.split = variant % 4 == 0 ? Split::contiguous : Split::zigzag;
          p.batch = 1 + variant % 2;
          p.q_heads = 4;
          p.kv_heads = 2;
          p.head_dim = 16;
          if (variant % 5 == 0) p.head_dim_v = 24;
          p.gpus = static_cast<int64_t>(gpus.size());
          SCOPED_TRACE(p.id() + " gpus " + std::to_string(*p.gpus));
          const auto ranks = static_cast<int>(gpus.size());
          const RandomInputs inputs(p);
          const auto ring = ring_session(kSplitKinds[2], p, make_group(*device, ranks));
          const auto by_nccl = ring_session(
              kNcclRing, p, std::make_unique<GroupWithFakeNccl>(make_group(*device, ranks), gpus));
          const CheckedOutputs expected = outputs_of_ring(*ring, inputs);
          for (int run = 0; run < 2; ++run) {
            EXPECT_TRUE(outputs_of_ring(*by_nccl, inputs) == expected) << "run " << run;
          }
          for (const GroupPart part : {GroupPart::copying, GroupPart::computing}) {
            CheckedOutputs unused(p);
            by_nccl->group()->only(part);
            by_nccl->run(inputs.view(), unused.view());
          }
          by_nccl->group()->only(GroupPart::everything);
          EXPECT_TRUE(outputs_of_ring(*by_nccl, inputs) == expected) << "after parts";
          const int64_t chunks = 2 * *p.gpus;
          if (length % chunks == 0) {
            EXPECT_EQ(by_nccl->group()->sent_bytes(), ring->group()->sent_bytes());
          }
        }
      }
    }
  }
}

TEST(NcclRing, IsNoRingWithoutNccl) {
  const auto device = make_host_device(2);
  Problem p{.q_len = 8, .kv_len = 8};
  p.gpus = 2;
  const RandomInputs inputs(p);
  const auto session = ring_session(kNcclRing, p, make_group(*device, 2));
  EXPECT_THROW(outputs_of_ring(*session, inputs), std::logic_error);
}

}  // namespace
}  // namespace flashbench
