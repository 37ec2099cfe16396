// The comparison as text.
#include "compare/present.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "sample_comparison.h"

namespace flashbench {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(ComparisonTable, HasEveryVerdictWithin100Columns) {
  const std::string table = to_table(sample_comparison().comparison);
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
  const std::string markdown = to_markdown(sample_comparison().comparison);
  EXPECT_THAT(markdown, HasSubstr("| failed: it is \\| wrong |"));
  EXPECT_THAT(markdown, HasSubstr("| case | provider | base ms | new ms |"));
}

TEST(ComparisonJson, SaysAllOfIt) {
  const auto json = nlohmann::ordered_json::parse(to_json(sample_comparison().comparison));
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
