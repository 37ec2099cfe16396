#include "measure/round_ceilings.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "device/device_tensors.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

Problem decoding() {
  return {.dtype = Dtype::bf16,
          .mask = Mask::causal_bottom_right,
          .batch = 3,
          .q_heads = 8,
          .kv_heads = 2,
          .q_len = 1,
          .kv_len = 300,
          .head_dim = 64};
}

Problem of_lengths(Layout layout) {
  Problem p = decoding();
  p.layout = layout;
  p.set_lengths(std::make_shared<const Lengths>(
      std::vector<RequestLengths>{{1, 50}, {2, 300}, {0, 7}, {1, 0}}));
  return p;
}

Problem paged(KvLayout layout) {
  Problem p = of_lengths(Layout::ragged);
  p.page_size = 16;
  p.kv_layout = layout;
  return p;
}

TEST(RoundCeilings, AreThereWhereMemoryMayBeTheLimit) {
  Problem p = decoding();
  EXPECT_TRUE(is_streamed(p));
  p.pass = Pass::backward;
  EXPECT_FALSE(is_streamed(p));
  p = decoding();
  p.q_len = p.kv_len = 4096;  // thousands of FLOPs a byte
  EXPECT_FALSE(is_streamed(p));
}

// Each row of each tensor once, and the bytes are those of compulsory_bytes without the logsumexp
// and the block table.
TEST(RoundCeilings, StreamsPartsAreEveryRowOnce) {
  Problem windowed = of_lengths(Layout::bshd);
  windowed.window_left = 9;
  const std::vector<Problem> problems{decoding(), of_lengths(Layout::bshd),
                                      of_lengths(Layout::ragged), paged(KvLayout::paged_nhd),
                                      windowed};
  for (const Problem& p : problems) {
    for (const int64_t part_bytes : {1, 1000, 1 << 20}) {
      const auto parts = stream_parts(p, part_bytes, 100);
      std::map<std::pair<int, int>, std::set<int64_t>> rows;  // by tensor and request
      int64_t count = 0;
      for (const StreamPart& part : parts) {
        EXPECT_GT(part.rows, 0);
        EXPECT_LE(part.rows, 100);
        for (int64_t row = part.first; row < part.first + part.rows; ++row) {
          rows[{part.tensor, part.request}].insert(row);
          ++count;
        }
      }
      int64_t distinct = 0;
      for (const auto& [place, found] : rows) distinct += static_cast<int64_t>(found.size());
      EXPECT_EQ(count, distinct) << p.id();
      int64_t entries = 0;
      if (p.is_paged()) {
        for (int64_t b = 0; b < p.batch; ++b) {
          entries += p.pages_with(p.request(b).seen_keys());
        }
      }
      EXPECT_EQ(stream_bytes(p, parts),
                p.compulsory_bytes() - 4 * p.q_heads * p.q_tokens() - 4 * entries)
          << p.id();
    }
  }
}

// The ceilings of a case with its own inputs. A page that the table does not give a request, or an
// entry behind its last one, would be an address outside the pool.
struct Rounds {
  Rounds(const Problem& p, Placement placement)
      : host(p, InputSpec{}, *device->stream().threads),
        inputs(*device, p, placement, host.inputs()),
        outputs(*device, p, placement),
        works(round_ceilings(*device, p, inputs.view(), outputs.view())) {}

  std::unique_ptr<Device> device = make_device("auto", 2);
  HostTensors host;
  DeviceInputs inputs;
  DeviceOutputs outputs;
  std::vector<CeilingWork> works;
};

TEST(RoundCeilings, StreamWritesAllOfOAndNothingElse) {
  for (const Problem& p :
       {decoding(), of_lengths(Layout::bshd), of_lengths(Layout::bhsd), of_lengths(Layout::ragged),
        paged(KvLayout::paged_nhd), paged(KvLayout::paged_hnd)}) {
    for (const Placement placement : {Placement::contiguous, Placement::strided}) {
      Rounds rounds(p, placement);
      ASSERT_EQ(rounds.works.size(), 2u) << p.id();
      EXPECT_EQ(rounds.works[0].name, kStream);
      EXPECT_EQ(rounds.works[1].name, kNullLaunch);
      const uint64_t inputs = rounds.inputs.hash();
      for (const CeilingWork& work : rounds.works) work.run();
      rounds.device->synchronize();
      const int64_t logsumexp = p.q_heads * p.q_tokens();
      EXPECT_EQ(rounds.outputs.unwritten_elements(), logsumexp) << p.id();
      EXPECT_EQ(rounds.outputs.damage(), "") << p.id();
      EXPECT_EQ(rounds.inputs.hash(), inputs) << p.id();
    }
  }
}

}  // namespace
}  // namespace flashbench
