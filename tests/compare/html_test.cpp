// The document that the HTML page of a comparison shows, and the page.
#include <gtest/gtest.h>

#include "compare/html/document.h"
#include "compare/html/page.h"
#include "compare/html/page_text.h"
#include "report/html/document.h"
#include "sample_comparison.h"

namespace flashbench {
namespace {

using Json = nlohmann::ordered_json;

Json document_of(const SampleComparison& sample) {
  return html_document(sample.comparison, sample.base, sample.now);
}

TEST(ComparisonHtml, BothSidesAreThereAsInAReport) {
  const SampleComparison sample = sample_comparison();
  EXPECT_EQ(document_of(sample)["results"], html_document({sample.base, sample.now})["results"]);
}

TEST(ComparisonHtml, EachRowHasItsVerdictAndItsRowsOnBothSides) {
  const SampleComparison sample = sample_comparison();
  const Json document = document_of(sample);
  const Json& rows = document["comparison"]["rows"];
  ASSERT_EQ(rows.size(), sample.comparison.rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowComparison& row = sample.comparison.rows[i];
    EXPECT_EQ(rows[i]["verdict"], name(row.change));
    for (const auto& [side, number] : {std::pair{"base", 0}, {"new", 1}}) {
      if (rows[i][side].is_null()) continue;
      const Json& there = document["results"][number]["rows"][rows[i][side].get<size_t>()];
      EXPECT_EQ(there["provider"], row.provider);
      EXPECT_EQ(there["q_len"], row.item.problem.q_len);
    }
  }
}

TEST(ComparisonHtml, ARowOfOneSideHasNoneOnTheOther) {
  const Json document = document_of(sample_comparison());
  const auto row_with = [&](std::string_view verdict) {
    for (const Json& row : document["comparison"]["rows"]) {
      if (row["verdict"] == verdict) return row;
    }
    return Json();
  };
  EXPECT_TRUE(row_with("NEW")["base"].is_null());
  EXPECT_TRUE(row_with("NEW")["new"].is_number());
  EXPECT_TRUE(row_with("MISSING")["new"].is_null());
  EXPECT_TRUE(row_with("MISSING")["base"].is_number());
}

TEST(ComparisonHtml, EachConditionHasBothValues) {
  const Json conditions = document_of(sample_comparison())["comparison"]["conditions"];
  ASSERT_EQ(conditions.size(), condition_keys().size());
  for (const Json& condition : conditions) {
    if (condition["key"] == "compiler") {
      EXPECT_EQ(condition["base"], "GNU 11");
      EXPECT_EQ(condition["new"], "GNU 12.2.0");
    } else {
      EXPECT_EQ(condition["base"], condition["new"]) << condition;
    }
  }
}

TEST(ComparisonHtml, NoTextOfAFileEndsTheScriptThatItIsIn) {
  SampleComparison sample = sample_comparison();
  sample.comparison.rows[0].reason = "</script><script>alert(1)</script>";
  EXPECT_EQ(to_html(sample.comparison, sample.base, sample.now).find("alert(1)</script>"),
            std::string::npos);
}

TEST(ComparisonHtml, ThePageHasItsPlacesAndParts) {
  const std::string_view page = comparison_page_text();
  EXPECT_EQ(page.find("@PAGE_"), std::string_view::npos);
  for (const char* part : {"{{DOCUMENT}}", "{{LIBRARY}}", "Rule of the verdicts",
                           "function makeTable", "function comparisonRows"}) {
    EXPECT_NE(page.find(part), std::string_view::npos) << part;
  }
}

}  // namespace
}  // namespace flashbench
