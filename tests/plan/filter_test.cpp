// --filter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/config.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Case some_case() {
  Case c;
  c.problem.pass = Pass::backward;
  c.problem.dtype = Dtype::bf16;
  c.problem.mask = Mask::causal_top_left;
  c.problem.q_heads = 8;
  c.problem.kv_heads = 2;
  c.problem.q_len = c.problem.kv_len = 1024;
  c.problem.head_dim = 128;
  return c;
}

std::string refusal(const std::string& text) {
  try {
    CaseFilter filter(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Filter, RefusesTextForANumber) {
  for (const char* text : {"seq=abc", "head_dim=64|x", "seed=", "q_len=nan", "scale=none"}) {
    EXPECT_THAT(refusal(text), HasSubstr("to be a number, got")) << text;
  }
  EXPECT_EQ(refusal("scale=default|0.5,seq=16"), "");
}

TEST(Filter, WithoutTermsKeepsAll) {
  EXPECT_TRUE(CaseFilter().keeps(some_case()));
}

TEST(Filter, KeepsCasesThatMatchEveryTerm) {
  EXPECT_TRUE(CaseFilter("pass=backward").keeps(some_case()));
  EXPECT_FALSE(CaseFilter("pass=forward").keeps(some_case()));
  EXPECT_TRUE(CaseFilter("pass=forward|backward,head_dim=64|128").keeps(some_case()));
  EXPECT_FALSE(CaseFilter("pass=backward,head_dim=64").keeps(some_case()));
  EXPECT_FALSE(CaseFilter("head_dim=12").keeps(some_case()));
  EXPECT_TRUE(CaseFilter("scale=default").keeps(some_case()));
}

TEST(Filter, SeqStandsForBothLengths) {
  Case c = some_case();
  EXPECT_TRUE(CaseFilter("seq=512|1024").keeps(c));
  EXPECT_FALSE(CaseFilter("seq=512").keeps(c));
  c.problem.q_len = 512;
  EXPECT_FALSE(CaseFilter("seq=512|1024").keeps(c));
}

TEST(Filter, TakesTheShorthandsOfConfigs) {
  EXPECT_TRUE(CaseFilter("hidden=1024,total_tokens=1024").keeps(some_case()));
  EXPECT_FALSE(CaseFilter("hidden=2048").keeps(some_case()));
  EXPECT_FALSE(CaseFilter("total_tokens=2048").keeps(some_case()));
}

TEST(Filter, MistakesAreNamedAllAtOnce) {
  EXPECT_THAT(refusal("had_dim=64,pass=foward,mask"),
              AllOf(HasSubstr("3 errors"), HasSubstr("did you mean \"head_dim\"?"),
                    HasSubstr("did you mean \"forward\"?"),
                    HasSubstr("expected AXIS=VALUE or AXIS=VALUE|VALUE, got \"mask\"")));
  EXPECT_THAT(refusal(""), HasSubstr("expected AXIS=VALUE"));
  EXPECT_THAT(refusal("seq=1,seq=2"), HasSubstr("write seq=VALUE|VALUE"));
}

}  // namespace
}  // namespace flashbench
