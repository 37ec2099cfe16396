// Valid configs, and invalid ones with the place and reason of the error.
#include "plan/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "attention/error.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A config around this one block of cases.
std::string with_block(const std::string& block) {
  return fmt::format(R"({{"schema_version": 1, "name": "test", "cases": [{}]}})", block);
}

// A config around one block with these axes, two heads and a length of 8.
std::string with_axes(const std::string& axes_text) {
  return with_block(fmt::format(R"({{{}, "q_heads": 2, "seq": 8}})", axes_text));
}

// A config with a valid block and this text among its top-level keys.
std::string with_keys(const std::string& keys) {
  return fmt::format(
      R"({{"schema_version": 1, "name": "test", {}, "cases": [{{"head_dim": 64, "q_heads": 2, "seq": 8}}]}})",
      keys);
}

SweepConfig parse_text(const std::string& text) {
  return parse_config(text, "test.json", {});
}

std::vector<ConfigIssue> issues_of(const std::string& text) {
  try {
    parse_text(text);
  } catch (const ConfigError& error) {
    return error.issues();
  }
  return {};
}

std::vector<std::string> ids(const SweepConfig& config) {
  std::vector<std::string> result;
  for (const Case& c : config.cases) result.push_back(c.problem.id());
  return result;
}

TEST(Config, DefaultsApplyToWhatIsNotSaid) {
  const SweepConfig config =
      parse_text(with_block(R"({"head_dim": 64, "q_heads": 2, "seq": 128})"));
  EXPECT_EQ(config.name, "test");
  EXPECT_EQ(config.device, "auto");
  EXPECT_EQ(config.threads, 0);
  EXPECT_THAT(config.providers, IsEmpty());
  ASSERT_THAT(config.cases, SizeIs(1));
  EXPECT_EQ(config.cases[0].key(), "forward/fp32/none/bshd/b1/hq2/hkv2/q128/k128/d64/normal/seed1");
}

TEST(Config, EveryKeyIsRead) {
  const SweepConfig config = parse_text(R"({
    "$schema": "sweep.schema.json", "schema_version": 1, "name": "n-1", "description": "why",
    "device": "cuda:3", "threads": 7, "providers": ["tiled:sm80", "naive"],
    "measure": {"cache": "cold", "warmup_runs": 3, "warmup_seconds": 0.5, "min_samples": 11,
                "max_samples": 12, "target_ci_width": 0.25, "max_seconds": 1.5,
                "counters": "on", "energy_seconds": 2.5},
    "verify": {"fp64_flops": 1e9},
    "cases": [{"pass": "backward", "dtype": "bf16", "mask": "causal_top_left", "layout": "bhsd",
               "head_dim": 72, "scale": 0.5, "q_heads": 6, "kv_heads": 2, "batch": 3, "q_len": 5,
               "kv_len": 9, "distribution": "outliers", "seed": 9007199254740991}]})");
  EXPECT_EQ(config.name, "n-1");
  EXPECT_EQ(config.description, "why");
  EXPECT_EQ(config.device, "cuda:3");
  EXPECT_EQ(config.threads, 7);
  EXPECT_THAT(config.providers, ElementsAre("tiled:sm80", "naive"));
  EXPECT_EQ(config.measure.cache, CacheState::cold);
  EXPECT_EQ(config.measure.warmup_runs, 3);
  EXPECT_EQ(config.measure.warmup_seconds, 0.5);
  EXPECT_EQ(config.measure.min_samples, 11);
  EXPECT_EQ(config.measure.counters, CounterMode::on);
  EXPECT_EQ(config.measure.energy_seconds, 2.5);
  EXPECT_EQ(config.measure.max_samples, 12);
  EXPECT_EQ(config.measure.target_ci_width, 0.25);
  EXPECT_EQ(config.measure.max_seconds, 1.5);
  EXPECT_EQ(config.verify.fp64_flops, 1e9);
  ASSERT_THAT(config.cases, SizeIs(1));
  EXPECT_EQ(config.cases[0].key(),
            "backward/bf16/causal_top_left/bhsd/b3/hq6/hkv2/q5/k9/d72/scale0.5/"
            "outliers/seed9007199254740991");
  EXPECT_EQ(config.json.at("threads"), 7);
}

TEST(Config, AxesMultiplyWithTheLengthInnermost) {
  const SweepConfig config = parse_text(with_block(
      R"({"seq": [8, 16], "pass": ["forward", "backward"], "head_dim": [64, 32], "q_heads": 1})"));
  EXPECT_THAT(ids(config), ElementsAre("forward/fp32/none/bshd/b1/hq1/hkv1/q8/k8/d64",
                                       "forward/fp32/none/bshd/b1/hq1/hkv1/q16/k16/d64",
                                       "forward/fp32/none/bshd/b1/hq1/hkv1/q8/k8/d32",
                                       "forward/fp32/none/bshd/b1/hq1/hkv1/q16/k16/d32",
                                       "backward/fp32/none/bshd/b1/hq1/hkv1/q8/k8/d64",
                                       "backward/fp32/none/bshd/b1/hq1/hkv1/q16/k16/d64",
                                       "backward/fp32/none/bshd/b1/hq1/hkv1/q8/k8/d32",
                                       "backward/fp32/none/bshd/b1/hq1/hkv1/q16/k16/d32"));
}

TEST(Config, ABlockMayNameItsModel) {
  const SweepConfig config =
      parse_text(with_block(R"({"model": "GPT-2", "seq": 8, "head_dim": 64, "q_heads": 1})"));
  EXPECT_THAT(ids(config), ElementsAre("forward/fp32/none/bshd/b1/hq1/hkv1/q8/k8/d64"));
}

TEST(Config, TokensAndHiddenSizeStandForBatchAndHeads) {
  const SweepConfig config = parse_text(with_block(
      R"({"total_tokens": 1024, "hidden": 256, "kv_heads": 2, "seq": [256, 1024], "head_dim": [64, 128]})"));
  EXPECT_THAT(ids(config), ElementsAre("forward/fp32/none/bshd/b4/hq4/hkv2/q256/k256/d64",
                                       "forward/fp32/none/bshd/b1/hq4/hkv2/q1024/k1024/d64",
                                       "forward/fp32/none/bshd/b4/hq2/hkv2/q256/k256/d128",
                                       "forward/fp32/none/bshd/b1/hq2/hkv2/q1024/k1024/d128"));
}

TEST(Config, PagesAreAxesLikeOthers) {
  const SweepConfig config = parse_text(with_block(
      R"({"head_dim": 8, "q_heads": 1, "lengths": {"batch_spec": "q1s40_q1s9"},
         "page_size": [8, 16], "page_order": ["shuffled", "reversed"], "kv_layout": "paged_hnd"})"));
  const std::string start = "forward/fp32/none/bshd/b2/hq1/hkv1/q1/k40/d8/normal/seed1/lengths" +
                            config.cases.at(0).problem.lengths->id();
  std::vector<std::string> keys;
  for (const Case& item : config.cases) keys.push_back(item.key());
  EXPECT_THAT(keys, ElementsAre(start + "/page_size8/paged_hnd",           //
                                start + "/page_size8/paged_hnd/reversed",  //
                                start + "/page_size16/paged_hnd",          //
                                start + "/page_size16/paged_hnd/reversed"));
  EXPECT_TRUE(CaseFilter("page_size=8,page_order=reversed").keeps(config.cases[1]));
  EXPECT_FALSE(CaseFilter("page_size=8,page_order=reversed").keeps(config.cases[2]));
}

TEST(Config, TokensAreQueriesWhereLengthsDiffer) {
  const SweepConfig config = parse_text(with_block(
      R"({"total_tokens": 64, "q_heads": 1, "q_len": 16, "kv_len": 48, "head_dim": 8})"));
  EXPECT_THAT(ids(config), ElementsAre("forward/fp32/none/bshd/b4/hq1/hkv1/q16/k48/d8"));
}

TEST(Config, ACaseThatComesUpAgainRunsOnce) {
  const SweepConfig config = parse_text(with_block(
      R"({"head_dim": 64, "q_heads": 2, "seq": [8, 16, 8]}, {"head_dim": 64, "hidden": 128, "seq": [32, 16]})"));
  EXPECT_THAT(ids(config), ElementsAre("forward/fp32/none/bshd/b1/hq2/hkv2/q8/k8/d64",
                                       "forward/fp32/none/bshd/b1/hq2/hkv2/q16/k16/d64",
                                       "forward/fp32/none/bshd/b1/hq2/hkv2/q32/k32/d64"));
}

TEST(Config, FilesAreRelativeToTheConfig) {
  const std::string block =
      R"({"head_dim": 64, "q_heads": 2, "seq": 8, "distribution": "files", "seed": [1, 2],
          "pass": ["forward", "backward"],
          "q": "q.npy", "k": "../k.npy", "v": "/abs/v.npy", "d_o": "t/do.npy"})";
  const SweepConfig config = parse_config(with_block(block), "some/folder/test.json", {});
  ASSERT_THAT(config.cases, SizeIs(2));  // a seed changes nothing
  EXPECT_EQ(config.cases[0].inputs.q, "some/folder/q.npy");
  EXPECT_EQ(config.cases[0].inputs.k, "some/k.npy");
  EXPECT_EQ(config.cases[0].inputs.v, "/abs/v.npy");
  EXPECT_EQ(config.cases[0].inputs.d_o, "");
  EXPECT_EQ(config.cases[1].inputs.d_o, "some/folder/t/do.npy");
}

struct BadConfig {
  std::string name;
  std::string text;
  std::string pointer;
  std::vector<std::string> words;  // of the message
};

class BadConfigs : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigs, AreRefusedWithOneIssueThatSaysWhereAndWhy) {
  const std::vector<ConfigIssue> issues = issues_of(GetParam().text);
  ASSERT_THAT(issues, SizeIs(1)) << (issues.size() > 1 ? issues[1].pointer + issues[1].message
                                                       : "");
  EXPECT_EQ(issues[0].pointer, GetParam().pointer);
  for (const std::string& word : GetParam().words) EXPECT_THAT(issues[0].message, HasSubstr(word));
}

const BadConfig kBadConfigs[] = {
    // Errors that the schema finds.
    {"not_an_object", "[1]", "", {"expected an object, got [1]"}},
    {"unknown_key",
     with_keys(R"("devcie": "cpu")"),
     "/devcie",
     {"unknown key", "did you mean \"device\"?"}},
    {"unknown_key_far_from_all", with_keys(R"("zzzzzz": 1)"), "/zzzzzz", {"unknown key"}},
    {"key_with_slash", with_keys(R"("a/b~c": 1)"), "/a~1b~0c", {"unknown key"}},
    {"axis_outside_the_cases",
     with_keys(R"("dtype": "bf16")"),
     "/dtype",
     {"unknown key; did you mean \"/cases/0/dtype\"?"}},
    {"misspelt_axis_outside_the_cases",
     with_keys(R"("headdim": 64)"),
     "/headdim",
     {"unknown key; did you mean \"/cases/0/head_dim\"?"}},
    {"key_outside_its_object",
     with_keys(R"("max_seconds": 2)"),
     "/max_seconds",
     {"unknown key; did you mean \"/measure/max_seconds\"?"}},
    {"missing_cases",
     R"({"schema_version": 1, "name": "a"})",
     "",
     {"lacks the key \"cases\"", "an array of 1 to 1000 items"}},
    {"misspelt_cases",
     R"({"schema_version": 1, "name": "a", "case": []})",
     "/case",
     {"did you mean \"cases\"?"}},
    {"wrong_version",
     R"({"schema_version": 2, "name": "a", "cases": [{"head_dim": 8, "q_heads": 1, "seq": 8}]})",
     "/schema_version",
     {"expected 1, got 2"}},
    {"empty_cases",
     R"({"schema_version": 1, "name": "a", "cases": []})",
     "/cases",
     {"expected an array of 1 to 1000 items, got []"}},
    {"bad_name",
     R"({"schema_version": 1, "name": "../a", "cases": [{"head_dim": 8, "q_heads": 1, "seq": 8}]})",
     "/name",
     {"expected text like \"quick\"", "64 characters", "got \"../a\""}},
    {"bad_device",
     with_keys(R"("device": "gpu")"),
     "/device",
     {"\"auto\", \"cpu\", \"cuda\", \"cuda:1\"", "got \"gpu\""}},
    {"bad_provider",
     with_keys(R"("providers": ["naive", "a,b"])"),
     "/providers/1",
     {"expected text like \"naive\"", "got \"a,b\""}},
    {"providers_not_an_array",
     with_keys(R"("providers": "naive")"),
     "/providers",
     {"expected an array of 1 to 64 items, got \"naive\""}},
    {"threads_not_an_integer",
     with_keys(R"("threads": 1.5)"),
     "/threads",
     {"expected an integer from 0 to 4096, got 1.5"}},
    {"threads_negative", with_keys(R"("threads": -1)"), "/threads", {"from 0 to 4096, got -1"}},
    {"threads_overflow_int64",
     with_keys(R"("threads": 18446744073709551615)"),
     "/threads",
     {"from 0 to 4096, got 18446744073709551615"}},
    {"measure_key",
     with_keys(R"("measure": {"max_second": 2})"),
     "/measure/max_second",
     {"did you mean \"max_seconds\"?"}},
    {"measure_text",
     with_keys(R"("measure": {"max_seconds": "2"})"),
     "/measure/max_seconds",
     {"expected a number from 0.001 to 3600, got \"2\""}},
    {"measure_cache",
     with_keys(R"("measure": {"cache": "clod"})"),
     "/measure/cache",
     {"one of \"warm\", \"cold\"", "got \"clod\"", "did you mean \"cold\"?"}},
    {"verify_key",
     with_keys(R"("verify": {"flops": 1})"),
     "/verify/flops",
     {"did you mean \"fp64_flops\"?"}},
    {"block_not_an_object", with_block("7"), "/cases/0", {"expected an object, got 7"}},
    {"axis_misspelt",
     with_axes(R"("headdim": 64)"),
     "/cases/0/headdim",
     {"did you mean \"head_dim\"?"}},
    {"axis_missing",
     with_block(R"({"q_heads": 2, "seq": 8})"),
     "/cases/0",
     {"lacks the key \"head_dim\"", "a multiple of 8 from 8 to 256, or an array of these"}},
    {"axis_wrong_type",
     with_axes(R"("head_dim": "64")"),
     "/cases/0/head_dim",
     {"expected a multiple of 8 from 8 to 256, or an array of these, got \"64\""}},
    {"axis_object",
     with_axes(R"("head_dim": {"from": 8})"),
     "/cases/0/head_dim",
     {"got {\"from\":8}"}},
    {"axis_null", with_axes(R"("head_dim": null)"), "/cases/0/head_dim", {"got null"}},
    {"axis_empty",
     with_axes(R"("head_dim": [])"),
     "/cases/0/head_dim",
     {"expected an array of 1 to 1000 items, got []"}},
    {"axis_item_not_multiple",
     with_axes(R"("head_dim": [64, 60])"),
     "/cases/0/head_dim/1",
     {"expected a multiple of 8 from 8 to 256, got 60"}},
    {"axis_item_too_large",
     with_axes(R"("head_dim": [512, 64])"),
     "/cases/0/head_dim/0",
     {"from 8 to 256, got 512"}},
    {"axis_nested_array",
     with_axes(R"("head_dim": [[64]])"),
     "/cases/0/head_dim/0",
     {"expected a multiple of 8 from 8 to 256, got [64]"}},
    {"name_misspelt",
     with_axes(R"("head_dim": 8, "dtype": "pf16")"),
     "/cases/0/dtype",
     {"one of \"fp32\", \"fp16\", \"bf16\"", "got \"pf16\"", "did you mean"}},
    {"name_in_array_misspelt",
     with_axes(R"("head_dim": 8, "pass": ["forward", "bakward"])"),
     "/cases/0/pass/1",
     {"did you mean \"backward\"?"}},
    {"mask_causal",
     with_axes(R"("head_dim": 8, "mask": "causal")"),
     "/cases/0/mask",
     {"did you mean \"causal_top_left\" or \"causal_bottom_right\"?"}},
    {"long_value_is_cut",
     with_axes(fmt::format(R"("head_dim": "{:x>500}")", "")),
     "/cases/0/head_dim",
     {"xxx..."}},
    {"seed_beyond_fp64_integers",
     with_axes(R"("head_dim": 8, "seed": 9007199254740992)"),
     "/cases/0/seed",
     {"from 0 to 9007199254740991"}},

    // Errors that the schema cannot express.
    {"seq_and_q_len",
     with_axes(R"("head_dim": 8, "q_len": 8)"),
     "/cases/0/seq",
     {"cannot be combined with \"q_len\"", "both lengths"}},
    {"seq_and_kv_len",
     with_axes(R"("head_dim": 8, "kv_len": 8)"),
     "/cases/0/seq",
     {"cannot be combined with \"kv_len\""}},
    {"no_length",
     with_block(R"({"head_dim": 8, "q_heads": 2})"),
     "/cases/0",
     {"lacks the lengths", "\"seq\"", "\"kv_len\""}},
    {"no_kv_len",
     with_block(R"({"head_dim": 8, "q_heads": 2, "q_len": 4})"),
     "/cases/0",
     {"lacks the key \"kv_len\""}},
    {"no_q_len",
     with_block(R"({"head_dim": 8, "q_heads": 2, "kv_len": 4})"),
     "/cases/0",
     {"lacks the key \"q_len\""}},
    {"lengths_and_batch",
     with_block(R"({"head_dim": 8, "q_heads": 2, "lengths": {"batch_spec": "q3"}, "batch": 2})"),
     "/cases/0/lengths",
     {"cannot be combined with \"batch\"", "lengths gives the batch"}},
    {"lengths_of_two_forms",
     with_block(R"({"head_dim": 8, "q_heads": 2, "lengths": [{"zipf": 3, "file": "x"}]})"),
     "/cases/0/lengths",
     {"exactly one of the keys", "found zipf and file"}},
    {"lengths_of_a_bad_spec",
     with_block(R"({"head_dim": 8, "q_heads": 2, "lengths": {"batch_spec": "3x"}})"),
     "/cases/0/lengths",
     {"/batch_spec: expected q", "character 2", "\"x\""}},
    {"lengths_that_are_text",
     with_block(R"({"head_dim": 8, "q_heads": 2, "lengths": "2q5"})"),
     "/cases/0/lengths",
     {"expected an object", "2q5"}},
    {"lengths_with_an_unknown_key",
     with_block(R"({"head_dim": 8, "q_heads": 2, "lengths": {"zipf": 3, "bacth": 2}})"),
     "/cases/0/lengths/bacth",
     {"unknown key", "batch"}},
    {"ragged_without_lengths",
     with_block(R"({"head_dim": 8, "q_heads": 2, "seq": 4, "layout": "ragged"})"),
     "/cases/0/layout",
     {"needs \"lengths\""}},
    {"pages_of_a_backward_pass",
     with_block(R"({"head_dim": 8, "seq": 8, "q_heads": 1, "pass": "backward", "page_size": 4})"),
     "/cases/0",
     {"a paged K/V cache is for pass forward, got backward"}},
    {"page_order_without_page_size",
     with_block(R"({"head_dim": 8, "seq": 8, "q_heads": 1, "page_order": "linear"})"),
     "/cases/0",
     {"page_order, shared_prefix and block_table need page_size"}},
    {"no_such_page_order",
     with_block(
         R"({"head_dim": 8, "seq": 8, "q_heads": 1, "page_size": 4, "page_order": "lineal"})"),
     "/cases/0/page_order",
     {"\"shuffled\"", "\"linear\"?"}},
    {"pages_of_no_rows",
     with_block(R"({"head_dim": 8, "seq": 8, "q_heads": 1, "page_size": 0})"),
     "/cases/0/page_size",
     {"from 1 to 1048576", "got 0"}},
    {"pages_of_more_than_memory",
     with_block(
         R"({"head_dim": 8, "q_len": 1, "kv_len": 16777216, "q_heads": 1, "batch": 1024, "page_size": 1})"),
     "/cases/0",
     {"at most 2^30 pages", "1.718e+10 pages"}},
    {"block_table_and_page_order",
     with_block(R"({"head_dim": 8, "seq": 8, "q_heads": 1, "page_size": 8, "page_order": "linear",
                  "block_table": {"pages": 1, "table": "0"}})"),
     "/cases/0/block_table",
     {"cannot be combined with \"page_order\"", "gives the pages"}},
    {"block_table_of_a_page_that_is_not_there",
     with_block(R"({"head_dim": 8, "seq": 8, "q_heads": 1, "page_size": 4,
                  "block_table": {"pages": 3, "table": "0,3"}})"),
     "/cases/0",
     {"request 0, page 1: expected a page from 0 to 2, found 3"}},
    {"block_table_of_no_number",
     with_block(R"({"head_dim": 8, "seq": 8, "q_heads": 1, "page_size": 4,
                  "block_table": {"pages": 3, "table": "0,x"}})"),
     "/cases/0/block_table",
     {"/table: request 0, page 1: expected a number"}},
    {"shared_pages_of_an_adversary",
     with_block(
         R"({"head_dim": 8, "seq": 8, "q_heads": 1, "batch": 2, "page_size": 4, "shared_prefix": 4,
                  "distribution": "one_hot"})"),
     "/cases/0",
     {"one_hot gives each request keys of its own"}},
    {"files_in_pages_of_an_order",
     with_block(R"({"head_dim": 8, "seq": 8, "q_heads": 1, "page_size": 4, "distribution": "files",
                  "q": "a", "k": "b", "v": "c"})"),
     "/cases/0",
     {"files with page_size needs block_table"}},
    {"no_heads",
     with_block(R"({"head_dim": 8, "seq": 8})"),
     "/cases/0",
     {"lacks the heads", "\"hidden\""}},
    {"tokens_and_batch",
     with_axes(R"("head_dim": 8, "total_tokens": 8, "batch": 1)"),
     "/cases/0/total_tokens",
     {"cannot be combined with \"batch\""}},
    {"hidden_and_heads",
     with_axes(R"("head_dim": 8, "hidden": 16)"),
     "/cases/0/hidden",
     {"cannot be combined with \"q_heads\""}},
    {"tokens_not_divisible",
     with_axes(R"("head_dim": 8, "total_tokens": 100)"),
     "/cases/0/total_tokens",
     {"expected a multiple of q_len (8), got 100"}},
    {"hidden_not_divisible",
     with_block(R"({"head_dim": [8, 64], "hidden": 72, "seq": [4, 8]})"),
     "/cases/0/hidden",
     {"expected a multiple of head_dim (64), got 72"}},
    {"kv_heads_not_a_divisor",
     with_axes(R"("head_dim": 8, "kv_heads": [1, 3])"),
     "/cases/0/kv_heads",
     {"expected a divisor of q_heads (2), got 3"}},
    {"kv_heads_above_q_heads",
     with_axes(R"("head_dim": 8, "kv_heads": 4)"),
     "/cases/0/kv_heads",
     {"expected a divisor of q_heads (2), got 4"}},
    {"tensor_too_large",
     with_block(R"({"head_dim": 256, "batch": 1048576, "q_heads": 1048576, "seq": 16777216})"),
     "/cases/0",
     {"at most 2^40 elements", "4.72e+21", "batch 1048576"}},
    {"cache_too_large",
     with_block(
         R"({"head_dim": 256, "batch": 1024, "q_heads": 8, "q_len": 1, "kv_len": 16777216})"),
     "/cases/0",
     {"at most 2^40 elements"}},
    {"too_many_scores",
     with_block(R"({"head_dim": 8, "q_heads": 8, "seq": 16777216})"),
     "/cases/0",
     {"at most 2^50 scores"}},
    {"files_lack_v",
     with_axes(R"("head_dim": 8, "distribution": "files", "q": "q", "k": "k")"),
     "/cases/0",
     {"lacks the key \"v\"", ".npy"}},
    {"files_lack_d_o",
     with_axes(
         R"("head_dim": 8, "pass": ["forward", "backward"], "distribution": ["normal", "files"], "q": "q", "k": "k", "v": "v")"),
     "/cases/0",
     {"lacks the key \"d_o\"", "backward"}},
    {"file_with_a_line_break",
     with_axes(R"("head_dim": 8, "distribution": "files", "q": "q\n.npy", "k": "k", "v": "v")"),
     "/cases/0/q",
     {"expected a path without control characters"}},
    {"file_without_files",
     with_axes(R"("head_dim": 8, "q": "q.npy")"),
     "/cases/0/q",
     {"distribution \"files\" only"}},
    {"d_o_without_backward",
     with_axes(
         R"("head_dim": 8, "distribution": "files", "q": "q", "k": "k", "v": "v", "d_o": "d")"),
     "/cases/0/d_o",
     {"pass \"backward\" only"}},
    {"provider_twice",
     with_keys(R"("providers": ["naive", "tiled", "naive"])"),
     "/providers/2",
     {"\"naive\" appears twice"}},
    {"samples_crossed",
     with_keys(R"("measure": {"min_samples": 20, "max_samples": 10})"),
     "/measure/max_samples",
     {"at least min_samples, got 10 and 20"}},
    {"min_samples_above_default_maximum",
     with_keys(R"("measure": {"min_samples": 1000})"),
     "/measure/min_samples",
     {"got 200 and 1000"}},
    {"duplicate_key",
     with_axes(R"("head_dim": 8, "head_dim": 16)"),
     "/cases/0/head_dim",
     {"appears twice"}},
};

INSTANTIATE_TEST_SUITE_P(Config, BadConfigs, testing::ValuesIn(kBadConfigs),
                         [](const auto& test) { return test.param.name; });

TEST(Config, EveryErrorIsReportedAtOnce) {
  const std::vector<ConfigIssue> issues = issues_of(R"({
    "schema_version": 1, "nmae": "x", "device": "gpu", "threads": "two",
    "measure": {"cache": "hot", "min_samples": 0},
    "cases": [{"head_dim": [64, 65, "x"], "q_heads": 2, "seq": 8, "pass": "sideways"},
              {"head_dim": 64, "hidden": 100, "seq": 8, "q_len": 8, "bacth": 2},
              {"head_dim": 64, "hidden": 100, "seq": 8}]})");
  std::vector<std::string> pointers;
  for (const ConfigIssue& issue : issues) pointers.push_back(issue.pointer);
  EXPECT_THAT(pointers, testing::UnorderedElementsAre(
                            "/nmae", "/device", "/threads", "/measure/cache",
                            "/measure/min_samples", "/cases/0/head_dim/1", "/cases/0/head_dim/2",
                            "/cases/0/pass", "/cases/1/bacth", "/cases/2/hidden"));
}

TEST(Config, ManyCasesOfABlockShareOneIssue) {
  EXPECT_THAT(issues_of(with_block(
                  R"({"head_dim": 64, "hidden": 100, "seq": [1, 2, 3, 4], "seed": [1, 2, 3]})")),
              SizeIs(1));
}

// The bounds are on what tensors hold: padded to the longest, or not.
TEST(Config, BoundsOfRequestsArePadded) {
  const auto with_layout = [](const char* layout) {
    return with_block(fmt::format(
        R"({{"head_dim": 256, "q_heads": 16, "layout": "{}",
             "lengths": {{"batch_spec": "1000q1_q1s16384k"}}}})",
        layout));
  };
  EXPECT_THAT(issues_of(with_layout("ragged")), SizeIs(0));
  EXPECT_THAT(issues_of(with_layout("bshd")), SizeIs(1));
}

TEST(Config, TheCaseCapHoldsExactly) {
  const std::string block =
      R"({{"head_dim": 8, "q_heads": 1, "seq": 8, "batch": [{}], "seed": {}}})";
  const std::string twenty = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20";
  std::vector<int> seeds(1000);
  std::iota(seeds.begin(), seeds.end(), 0);
  const std::string full = fmt::format(fmt::runtime(block), twenty, nlohmann::json(seeds).dump());
  EXPECT_THAT(parse_text(with_block(full)).cases, SizeIs(kMaxCases));

  const std::string one = R"({"head_dim": 16, "q_heads": 1, "seq": 8})";
  const std::vector<ConfigIssue> issues = issues_of(with_block(full + "," + one));
  ASSERT_THAT(issues, SizeIs(1));
  EXPECT_EQ(issues[0].pointer, "/cases/1");
  EXPECT_THAT(issues[0].message, AllOf(HasSubstr("at most 20000 cases"), HasSubstr("got 20001")));
}

TEST(Config, AProductThatOverflowsIsRefusedBeforeItIsExpanded) {
  const std::string ones = nlohmann::json(std::vector<int>(1000, 1)).dump();
  const std::vector<ConfigIssue> issues = issues_of(with_block(fmt::format(
      R"({{"head_dim": 8, "scale": {0}, "q_heads": {0}, "kv_heads": {0}, "batch": {0}, "q_len": {0}, "kv_len": {0}, "seed": {0}}})",
      ones)));
  ASSERT_THAT(issues, SizeIs(1));
  EXPECT_EQ(issues[0].pointer, "/cases/0");
  EXPECT_THAT(issues[0].message, HasSubstr("1e+21"));
}

TEST(Config, TheMessageNamesSourcePlacesAndCount) {
  try {
    parse_config(with_keys(R"("device": "gpu", "threads": -1)"), "dir/my.json", {});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("dir/my.json: 2 errors\n"), HasSubstr("\n  /device: expected text"),
                      HasSubstr("\n  /threads: expected an integer")));
  }
}

TEST(Config, TheMessageIsSafeForATerminalAndBounded) {
  std::string keys = R"("\u001b[31m": 1)";
  for (int i = 0; i < 100; ++i) keys += fmt::format(R"(, "{}zzzzzz": 1)", i);
  try {
    parse_text(with_keys(keys));
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_THAT(text, AllOf(HasSubstr("101 errors"), HasSubstr("and 51 more")));
    EXPECT_THAT(error.issues(), SizeIs(101));
  }
}

TEST(Config, OverridesApplyBeforeValidation) {
  const std::string text = with_block(R"({"head_dim": 60, "q_heads": 2, "seq": 8})");
  const SweepConfig config =
      parse_config(text, "test.json",
                   {parse_override("/cases/0/head_dim=64"), parse_override("/cases/0/seq=[16,32]"),
                    parse_override("/measure/max_seconds=2"), parse_override("/device=cpu")});
  EXPECT_THAT(config.cases, SizeIs(2));
  EXPECT_EQ(config.cases[0].problem.head_dim, 64);
  EXPECT_EQ(config.measure.max_seconds, 2);
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.json.at("measure").at("max_seconds"), 2);

  try {
    parse_config(text, "test.json",
                 {parse_override("/cases/5/seq=1"), parse_override("/devise=cpu")});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    std::vector<std::string> pointers;
    for (const ConfigIssue& issue : error.issues()) pointers.push_back(issue.pointer);
    EXPECT_THAT(pointers,
                testing::UnorderedElementsAre("/cases/5", "/devise", "/cases/0/head_dim"));
  }
}

TEST(Config, FilesAreLoadedOrRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder / "good.json") << with_block(R"({"head_dim": 64, "q_heads": 2, "seq": 8})");
  std::ofstream(folder / "large.json") << std::string(2'000'000, ' ');
  std::ofstream empty(folder / "empty.json");

  EXPECT_THAT(load_config(folder / "good.json", {}).cases, SizeIs(1));
  EXPECT_THROW(load_config(folder / "none.json", {}), FileError);
  EXPECT_THROW(load_config(folder.path(), {}), FileError);
  EXPECT_THROW(load_config(folder / "large.json", {}), FileError);
  EXPECT_THROW(load_config(folder / "empty.json", {}), ConfigError);
}

}  // namespace
}  // namespace flashbench
