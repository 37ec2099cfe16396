#include "plan/nearest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<std::string> kKnown{"head_dim", "q_heads", "kv_heads", "seq", "seed", "q"};

TEST(Nearest, FindsTypingErrors) {
  EXPECT_THAT(nearest("headdim", kKnown), ElementsAre("head_dim"));
  EXPECT_THAT(nearest("HEAD_DIM", kKnown), ElementsAre("head_dim"));
  EXPECT_THAT(nearest("haed_dim", kKnown), ElementsAre("head_dim"));
  EXPECT_THAT(nearest("sed", kKnown), ElementsAre("seq", "seed"));
}

TEST(Nearest, FindsPartsOfNames) {
  EXPECT_THAT(nearest("heads", kKnown), ElementsAre("q_heads", "kv_heads"));
  EXPECT_THAT(nearest("seq_len", kKnown), ElementsAre("seq"));
}

TEST(Nearest, SaysNothingWhenNothingIsNear) {
  EXPECT_THAT(nearest("elephant", kKnown), IsEmpty());
  EXPECT_THAT(nearest("x", kKnown), IsEmpty());
  EXPECT_THAT(nearest("", kKnown), IsEmpty());
  EXPECT_THAT(nearest(std::string(1000, 'q'), kKnown), IsEmpty());
  EXPECT_EQ(did_you_mean("elephant", kKnown), "");
}

TEST(Nearest, EndsASentence) {
  EXPECT_EQ(did_you_mean("head", kKnown),
            "; did you mean \"head_dim\" or \"q_heads\" or \"kv_heads\"?");
}

}  // namespace
}  // namespace flashbench
