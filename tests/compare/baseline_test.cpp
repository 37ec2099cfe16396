#include "compare/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "attention/error.h"
#include "compare/comparable.h"
#include "report/json.h"
#include "sample_sweep.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using testing::HasSubstr;

class BaselineFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& text) {
    std::ofstream(folder_ / "baseline.json", std::ios::binary) << text;
    return folder_ / "baseline.json";
  }

  static std::string message(const std::filesystem::path& path) {
    try {
      read_baseline(path);
    } catch (const BaselineError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
};

TEST_F(BaselineFile, AResultIsABaseline) {
  const SweepResult result = nine_rows({}, 1);
  EXPECT_EQ(to_json(read_baseline(write(to_json(result)))), to_json(result));
}

TEST_F(BaselineFile, AnythingElseIsAnErrorOfTheBaseline) {
  EXPECT_THAT(message("no/such.json"),
              HasSubstr("baseline no/such.json: cannot read: No such file"));
  EXPECT_THAT(message(write("")), HasSubstr("not a flashbench result file"));
  EXPECT_THAT(message(write(R"({"schema_version": 2})")),
              HasSubstr("/schema_version: expected 1, found 2"));
  std::string torn = to_json(nine_rows({}, 1));
  torn.resize(torn.size() / 2);
  EXPECT_THAT(message(write(torn)), HasSubstr("not JSON"));
}

TEST(BaselineName, LiesInTheFolderOfTheSweep) {
  EXPECT_EQ(baseline_path("out", "main"), "out/baselines/main.json");
  EXPECT_EQ(baseline_path("out", "v1.2_rc-3"), "out/baselines/v1.2_rc-3.json");
  EXPECT_EQ(baseline_path("out", "main.json"), "main.json");
  EXPECT_EQ(baseline_path("out", "main.json.gz"), "main.json.gz");
  EXPECT_EQ(baseline_path("out", "a/main"), "a/main");
}

TEST(BaselineName, IsNoPath) {
  for (const char* name :
       {"", ".", "..", "../x", "a/b", "-x", ".x", "a b", "main.json", "main.json.gz", "a\nb"}) {
    EXPECT_THROW(named_baseline("out", name), BadInput) << name;
  }
  EXPECT_THROW(named_baseline("out", std::string(65, 'x')), BadInput);
  EXPECT_THROW(baseline_path("out", ".."), BadInput);
}

}  // namespace
}  // namespace flashbench
