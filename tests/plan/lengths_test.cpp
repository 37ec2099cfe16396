#include "plan/lengths.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "attention/error.h"
#include "plan/batch_spec.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using Json = nlohmann::ordered_json;

std::string spec_of(const Json& json) {
  return batch_spec(*read_lengths(StrictJson(json)));
}

std::string refusal(const Json& json) {
  try {
    read_lengths(StrictJson(json));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ReadLengths, InEachOfTheForms) {
  EXPECT_EQ(spec_of({{"list", {{1, 2}, {1, 2}, {0, 7}}}}), "2q1s2_q0s7");
  EXPECT_EQ(spec_of({{"batch_spec", "2q2k_q1s1k"}}), "2q2048_q1s1024");
  EXPECT_EQ(spec_of({{"pattern", "skew"}, {"batch", 2}, {"kv_len", 10}}), "q5_q10");
  EXPECT_EQ(spec_of({{"pattern", "bimodal"}, {"batch", 2}, {"kv_len", 80}, {"q_len", 1}}),
            "q1s80_q1s10");
  EXPECT_EQ(spec_of({{"zipf", 1}, {"batch", 3}}), "3q1");
  EXPECT_EQ(
      read_lengths(StrictJson(Json{{"quantiles", "mooncake_conv"}, {"batch", 64}}))->requests(),
      64);
}

TEST(ReadLengths, SortedAndWithRequestsWithoutKeys) {
  const Json bimodal{{"pattern", "bimodal"}, {"batch", 4}, {"kv_len", 80}, {"q_len", 1}};
  const auto with = [&](const char* key, const Json& value) {
    Json json = bimodal;
    json[key] = value;
    return json;
  };
  EXPECT_EQ(spec_of(with("sort", "shortest_first")), "2q1s10_2q1s80");
  EXPECT_EQ(spec_of(with("sort", "longest_first")), "2q1s80_2q1s10");
  EXPECT_EQ(spec_of(with("zero_fraction", 0)), spec_of(bimodal));
  EXPECT_EQ(spec_of(with("zero_fraction", 1)), "4q1s0");
  EXPECT_EQ(refusal(with("zero_fraction", 1.5)),
            "/zero_fraction: expected a number from 0 to 1, found 1.5");
  EXPECT_EQ(refusal(with("sort", "up")),
            "/sort: expected one of shortest_first, longest_first, found \"up\"");
  EXPECT_EQ(refusal({{"list", {{1, 2}}}, {"sort", "longest_first"}}),
            "/sort: does not go with list");
}

TEST(ReadLengths, DifferBySeed) {
  const Json once{{"zipf", 4096}, {"batch", 20}, {"seed", 3}};
  EXPECT_EQ(spec_of(once), spec_of(once));
  EXPECT_NE(spec_of(once), spec_of({{"zipf", 4096}, {"batch", 20}, {"seed", 4}}));
  EXPECT_EQ(spec_of({{"zipf", 4096}, {"batch", 20}}),
            spec_of({{"zipf", 4096}, {"batch", 20}, {"seed", 1}}));
}

TEST(ReadLengths, SayWhatIsWrongAndWhere) {
  const std::string keys =
      "expected exactly one of the keys list, batch_spec, pattern, zipf, "
      "quantiles, file, found ";
  EXPECT_EQ(refusal(Json::object()), keys + "none");
  EXPECT_EQ(refusal({{"list", {{1, 2}}}, {"zipf", 3}}), keys + "list and zipf");
  EXPECT_EQ(refusal({{"list", {{1, 2}}}, {"batch", 3}}), "/batch: does not go with list");
  EXPECT_EQ(refusal({{"list", {{1, 2}}}, {"bacth", 3}}), "/bacth: does not go with list");
  EXPECT_EQ(refusal({{"list", Json::array()}}), "expected from 1 to 32768 requests, found 0");
  EXPECT_EQ(refusal({{"list", {{1, 2}, {3}}}}), "/list/1: expected [q_len, kv_len], found [3]");
  EXPECT_EQ(refusal({{"list", {{1, -2}}}}),
            "/list/0/1: expected a number from 0 to 16777216, found -2");
  EXPECT_EQ(refusal({{"list", {{1, 2.5}}}}), "/list/0/1: expected an integer, found 2.5");
  EXPECT_EQ(refusal({{"list", {{0, 2}}}}),
            "expected at least one query, found none in any request");
  EXPECT_EQ(refusal({{"batch_spec", "2q"}}),
            "/batch_spec: expected a length at character 3, found the end");
  EXPECT_EQ(refusal({{"pattern", "flat"}, {"batch", 1}, {"kv_len", 1}}),
            "/pattern: expected one of constant, uniform, wide, longtail, bimodal, skew, found "
            "\"flat\"");
  EXPECT_EQ(refusal({{"pattern", "wide"}, {"kv_len", 1}}), "/batch: missing");
  EXPECT_EQ(refusal({{"pattern", "wide"}, {"batch", 1}}), "/kv_len: missing");
  EXPECT_EQ(refusal({{"zipf", 0}, {"batch", 1}}),
            "/zipf: expected a number from 1 to 1048576, found 0");
  EXPECT_EQ(refusal({{"quantiles", "x"}, {"batch", 1}}),
            "/quantiles: expected one of azure23_conv, azure23_code, mooncake_conv, found \"x\"");
}

class LengthsFile : public testing::Test {
 protected:
  Json file(const std::string& text) {
    std::ofstream(path_) << text;
    return {{"file", path_}};
  }
  TemporaryFolder folder_;
  std::string path_ = folder_.path() / "lengths.csv";
};

TEST_F(LengthsFile, HasALineForEachRequest) {
  EXPECT_EQ(spec_of(file("q_len,kv_len\n16,512\n1,7\n")), "q16s512_q1s7");
  EXPECT_EQ(spec_of(file("q_len,kv_len\r\n16,512\r\n0,7")), "q16s512_q0s7");
  EXPECT_EQ(spec_of(file("\xef\xbb\xbfq_len,kv_len\r\n16,512\r\n")), "q16s512");  // of spreadsheets
}

TEST_F(LengthsFile, SaysWhichLineIsWrong) {
  EXPECT_EQ(refusal(file("")), "/file: " + path_ + ", line 1: expected q_len,kv_len, found \"\"");
  EXPECT_EQ(refusal(file("q_len,kv_len\n1,2\n3\n")),
            "/file: " + path_ +
                ", line 3: expected two lengths from 0 to 16777216, as in 16,512, found \"3\"");
  for (const char* line : {"1,2,3", "-1,2", "1,x", " 1,2", "1,99999999999", ",", ""}) {
    EXPECT_NE(refusal(file(std::string("q_len,kv_len\n") + line + "\n")).find("line 2"),
              std::string::npos)
        << line;
  }
  EXPECT_EQ(refusal(file("q_len,kv_len\n")), "expected from 1 to 32768 requests, found 0");
  EXPECT_THROW(read_lengths(StrictJson(Json{{"file", "/nonexistent.csv"}})), FileError);
  EXPECT_THROW(read_lengths(StrictJson(Json{{"file", "-"}})), FileError);  // no standard input
}

TEST(LengthsOfOption, AreABatchSpecOrJson) {
  EXPECT_EQ(lengths_of_option("2q5"), Json({{"batch_spec", "2q5"}}));
  EXPECT_EQ(lengths_of_option(R"({"zipf": 3, "batch": 2})"), Json({{"zipf", 3}, {"batch", 2}}));
  EXPECT_THROW(lengths_of_option("{"), std::invalid_argument);
}

}  // namespace
}  // namespace flashbench
