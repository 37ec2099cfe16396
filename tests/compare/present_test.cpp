// The comparison as text.
#include "compare/present.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "sample_sweep.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A row of every kind.
Comparison sample_comparison() {
  Times three{.processes = {30, 30, 30}};
  SweepResult base = nine_rows(three, 1), now = nine_rows(three, 2);
  for (double& seconds : now.records[0].measurement->seconds) seconds *= 1.5;
  for (double& seconds : now.records[1].measurement->seconds) seconds /= 1.5;
  now.records[2].measurement->seconds.resize(5);
  now.records[2].measurement->samples_per_process = {2, 2, 1};
  const auto end = [](Record& record, Status status) {
    record.status = status;
    record.reason = "it is | wrong";
    record.measurement.reset();
  };
  end(now.records[3], Status::failed);
  end(base.records[4], Status::crashed);
  base.records.erase(base.records.begin() + 5);
  now.records.erase(now.records.begin() + 6);
  base.meta["compiler"] = "GNU 11";
  CompareOptions options;
  options.allow_different = {"compiler"};
  return compare(base, now, options, "old.json", "new.json");
}

TEST(ComparisonTable, HasEveryVerdictWithin100Columns) {
  const std::string table = to_table(sample_comparison());
  for (const char* said :
       {"SLOWER", "FASTER", "SAME", "INCONCLUSIVE", "NEWLY_WRONG", "FIXED", "NEW", "MISSING",
        "too few samples: 90 and 5", "failed: it is | wrong", "was crashed", "base old.json",
        "compared although compiler differs: \"GNU 11\" in the base, \"GNU 12.2.0\" in the new "
        "result",
        "9 rows: 1 SLOWER, 1 NEWLY_WRONG, 1 FASTER", "tiled: ", "geometric mean of 4 rows"}) {
    EXPECT_THAT(table, HasSubstr(said));
  }
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(ComparisonMarkdown, EscapesPipes) {
  const std::string markdown = to_markdown(sample_comparison());
  EXPECT_THAT(markdown, HasSubstr("| failed: it is \\| wrong |"));
  EXPECT_THAT(markdown, HasSubstr("| case | provider | base ms | new ms |"));
}

TEST(ComparisonJson, SaysAllOfIt) {
  const auto json = nlohmann::ordered_json::parse(to_json(sample_comparison()));
  EXPECT_EQ(json["comparison_schema_version"], kComparisonSchemaVersion);
  EXPECT_EQ(json["regressed"], true);
  EXPECT_EQ(json["counts"]["SLOWER"], 1);
  EXPECT_EQ(json["counts"]["SAME"], 2);
  EXPECT_EQ(json["rows"].size(), 9u);
  const auto& slow = json["rows"][0];
  EXPECT_EQ(slow["verdict"], "SLOWER");
  EXPECT_NEAR(slow["ratio"].get<double>(), 1.5, 0.02);
  EXPECT_LT(slow["ratio_ci95_low"], slow["ratio"]);
  EXPECT_GT(slow["ratio_ci95_high"], slow["ratio"]);
  EXPECT_LT(slow["p_holm"], 0.05);
  EXPECT_TRUE(json["rows"][3]["ratio"].is_null());
  EXPECT_EQ(json["differences"][0]["key"], "compiler");
  EXPECT_EQ(json["geometric_mean_ratios"]["tiled"]["rows"], 4);
}

}  // namespace
}  // namespace flashbench
