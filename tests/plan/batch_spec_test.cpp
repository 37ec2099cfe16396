#include "plan/batch_spec.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace flashbench {
namespace {

using RequestList = std::vector<RequestLengths>;

TEST(BatchSpec, IsTheGrammarOfVllm) {
  EXPECT_EQ(parse_batch_spec("q2k"), (RequestList{{2048, 2048}}));
  EXPECT_EQ(parse_batch_spec("2q5_q1s1k"), (RequestList{{5, 5}, {5, 5}, {1, 1024}}));
  EXPECT_EQ(parse_batch_spec("1q3s0_q0s7"), (RequestList{{3, 0}, {0, 7}}));
  EXPECT_EQ(parse_batch_spec("2q2k_32q1s1k").size(), 34u);
  EXPECT_EQ(parse_batch_spec("0q5_q1"), (RequestList{{1, 1}}));
}

TEST(BatchSpec, SaysWhereItGoesWrong) {
  for (const auto& [text, message] :
       {std::pair{"", "expected a number of requests or q at character 1, found the end"},
        {"5", "expected q and a number of queries at character 2, found the end"},
        {"q", "expected a length at character 2, found the end"},
        {"qk", "expected a length at character 2, found \"k\""},
        {"q5s", "expected a length at character 4, found the end"},
        {"q5_", "expected q and a number of queries at character 4, found the end"},
        {"q5 ", "expected _ or the end at character 3, found \" \""},
        {"q5s6s7", "expected _ or the end at character 5, found \"s7\""},
        {"q-5", "expected a length at character 2, found \"-5\""},
        {"2q5_q1m", "expected _ or the end at character 7, found \"m\""},
        {"q99999999", "expected a number up to 16777216 at character 2, found \"99999999\""},
        {"q16385k", "expected a length up to 16777216 at character 8, found the end"},
        {"99999q5", "expected a number up to 32768 at character 1, found \"99999q5\""},
        {"32768q1_q1", "expected at most 32768 requests at character 11, found the end"}}) {
    try {
      parse_batch_spec(text);
      FAIL() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_STREQ(error.what(), message) << text;
    }
  }
}

TEST(BatchSpec, IsWrittenShortAndReadBack) {
  for (const auto& [requests, text] :
       {std::pair{RequestList{{5, 5}}, "q5"},
        {{{5, 5}, {5, 5}, {5, 6}, {5, 5}}, "2q5_q5s6_q5"},
        {{{0, 3}, {3, 0}, {0, 0}, {2048, 2048}}, "q0s3_q3s0_q0_q2048"}}) {
    EXPECT_EQ(batch_spec(Lengths(requests)), text);
    EXPECT_EQ(parse_batch_spec(text), requests);
  }
}

}  // namespace
}  // namespace flashbench
