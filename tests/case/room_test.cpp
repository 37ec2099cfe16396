#include "case/room.h"

#include <gtest/gtest.h>

namespace flashbench {
namespace {

TEST(Room, CountsEveryTensorOnceForEachPlace) {
  const Problem p{.dtype = Dtype::fp16, .q_heads = 2, .q_len = 10, .kv_len = 100, .head_dim = 8};
  const int64_t queries = 2 * 10 * 8 * 2, keys = 100 * 8 * 2;
  const int64_t of_audits = queries + keys;  // another Q and K
  EXPECT_EQ(host_bytes_needed(p, DeviceKind::cuda), queries + 2 * keys + of_audits + 2 * queries);
  EXPECT_EQ(host_bytes_needed(p, DeviceKind::cpu),
            2 * (queries + 2 * keys) + of_audits + 3 * queries);
  Problem backward = p;
  backward.pass = Pass::backward;
  EXPECT_EQ(host_bytes_needed(backward, DeviceKind::cpu),
            3 * (3 * queries + 2 * keys) + 3 * (queries + 2 * keys));
}

TEST(Room, CountsTensorsWithAHeadDimOfTheirOwn) {
  const Problem p{.dtype = Dtype::fp16,
                  .q_heads = 2,
                  .q_len = 10,
                  .kv_len = 100,
                  .head_dim = 8,
                  .head_dim_v = 16};
  const int64_t q = 2 * 10 * 8 * 2, o = 2 * q, k = 100 * 8 * 2, v = 2 * k;
  EXPECT_EQ(host_bytes_needed(p, DeviceKind::cpu), 2 * (q + k + v) + (q + k) + 3 * o);
  Problem backward = p;
  backward.pass = Pass::backward;
  EXPECT_EQ(host_bytes_needed(backward, DeviceKind::cpu),
            3 * (q + k + v + 2 * o) + 3 * (q + k + v));
}

// Their reference has the values in fp32, and their O is bf16.
TEST(Room, CountsWhatBytesMean) {
  Problem p{.dtype = Dtype::e4m3, .q_heads = 2, .q_len = 10, .kv_len = 100, .head_dim = 8};
  const int64_t q_and_k = 2 * 10 * 8 + 100 * 8, elements = q_and_k + 100 * 8, o = 2 * 10 * 8 * 2;
  EXPECT_EQ(host_bytes_needed(p, DeviceKind::cuda), elements + q_and_k + 2 * o + 4 * elements);
  p.dtype = Dtype::bf16;
  p.quantize = Quantize::e4m3_head;
  EXPECT_EQ(host_bytes_needed(p, DeviceKind::cuda),
            2 * elements + 2 * q_and_k + 2 * o + 4 * elements);
}

// Bytes, and K and V in Q's dtype, from which they were made.
TEST(Room, CountsACacheOfBytes) {
  Problem p{.dtype = Dtype::bf16, .q_heads = 2, .q_len = 10, .kv_len = 100, .head_dim = 8};
  p.kv_dtype = Dtype::e4m3;
  const int64_t q = 2 * 10 * 8, keys = 2 * 100 * 8, o = 2 * q;
  EXPECT_EQ(host_bytes_needed(p, DeviceKind::cuda),
            2 * q + keys + (2 * q + keys / 2) + 2 * o + 2 * keys);
}

TEST(Room, IsThereForASmallProblemAndNotForAPetabyte) {
  Problem p{.q_len = 10, .kv_len = 100};
  EXPECT_EQ(why_no_room(p, DeviceKind::cpu), "");
  p.kv_len = int64_t{1} << 40;
  EXPECT_NE(why_no_room(p, DeviceKind::cpu).find("its tensors need 1310720.0 GiB"),
            std::string::npos)
      << why_no_room(p, DeviceKind::cpu);
}

}  // namespace
}  // namespace flashbench
