// The document that an HTML report shows, and the page that it is in.
#include <gtest/gtest.h>

#include "report/html/document.h"
#include "report/html/page.h"
#include "report/html/page_text.h"
#include "sample_result.h"

namespace flashbench {
namespace {

using Json = nlohmann::ordered_json;

// What the page's script reads, as the browser reads it.
std::string document_text(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="document">)";
  const size_t at = page.find(begin);
  EXPECT_NE(at, std::string::npos);
  const size_t from = at + begin.size();
  return page.substr(from, page.find("</script", from) - from);
}

SweepResult timed_with_states() {
  SweepResult result = sample_result();
  Measurement& measurement = *result.records[0].measurement;
  measurement.seconds = {0.00123456789, 0.002};
  measurement.samples_per_process = {1, 1};
  measurement.states = {{1980, 500.12345, 0}, {1755, 700, 0x4}};
  return result;
}

TEST(HtmlDocument, ARowHasItsColumnsAndItsCommand) {
  const SweepResult result = sample_result();
  const Json row = html_document({{"a.json", result}})["results"][0]["rows"][1];
  EXPECT_EQ(row["provider"], "tiled");
  EXPECT_EQ(row["kv_len"], 128);
  EXPECT_EQ(row["median_ms"], 1);
  EXPECT_EQ(row["speedup_vs_naive"], 4);
  EXPECT_EQ(row["command"], repro_command(result.records[1]));
  EXPECT_EQ(row["checks"]["tensors"][0]["tensor"], "o");
  EXPECT_FALSE(row.contains("bytes_measured"));  // absent is absent, never 0
}

TEST(HtmlDocument, SamplesAreInTimeOrderWithTheirStates) {
  const Json document = html_document({{"a.json", timed_with_states()}});
  const Json samples = document["results"][0]["rows"][0]["samples"];
  EXPECT_EQ(samples["ms"], Json({1.2346, 2}));
  EXPECT_EQ(samples["sm_mhz"], Json({1980, 1755}));
  EXPECT_EQ(samples["power_w"], Json({500.1, 700}));
  EXPECT_EQ(samples["throttled"], Json::array({1}));
  EXPECT_EQ(samples["per_process"], Json({1, 1}));
}

TEST(HtmlDocument, ARowWithoutATimeHasItsReasonAndNoSamples) {
  const Json rows = html_document({{"a.json", sample_result()}})["results"][0]["rows"];
  EXPECT_EQ(rows[4]["status"], "unsupported");
  EXPECT_EQ(rows[4]["reason"], "it has no head_dim 64");
  EXPECT_FALSE(rows[4].contains("samples"));
  EXPECT_FALSE(rows[4].contains("median_ms"));
}

TEST(HtmlDocument, ResultsStandBesideEachOther) {
  const Json document = html_document({{"a.json", sample_result()}, {"b.json", sample_result()}});
  ASSERT_EQ(document["results"].size(), 2u);
  EXPECT_EQ(document["results"][1]["file"], "b.json");
  EXPECT_EQ(document["results"][1]["rows"].size(), sample_result().records.size());
}

TEST(HtmlPage, HoldsTheDocumentUnchanged) {
  const std::vector<NamedResult> results{{"a.json", timed_with_states()}};
  EXPECT_EQ(Json::parse(document_text(to_html(results))), html_document(results));
}

TEST(HtmlPage, NoTextOfAFileEndsTheScriptThatItIsIn) {
  SweepResult result = sample_result();
  const std::string hostile = "</script><script>alert(1)</script><!--<script>";
  result.records[0].provider = hostile;
  result.records[1].reason = hostile;
  const std::string page = to_html({{hostile, result}});
  EXPECT_EQ(page.find("alert(1)</script>"), std::string::npos);
  const std::string document = document_text(page);
  EXPECT_EQ(document.find('<'), std::string::npos);
  const Json read = Json::parse(document)["results"][0];
  EXPECT_EQ(read["file"], hostile);
  EXPECT_EQ(read["rows"][0]["provider"], hostile);
  EXPECT_EQ(read["rows"][1]["reason"], hostile);
}

TEST(HtmlPage, NamesThatAreNotUtf8AreReplaced) {
  const std::string page = to_html({{"\xff.json", sample_result()}});
  EXPECT_EQ(Json::parse(document_text(page))["results"][0]["file"], "\xef\xbf\xbd.json");
}

TEST(HtmlPage, NoTextOfAFileIsTakenForAPlace) {
  const std::vector<NamedResult> results{{"{{LIBRARY}}{{DOCUMENT}}.json", sample_result()}};
  EXPECT_EQ(Json::parse(document_text(to_html(results))), html_document(results));
}

TEST(HtmlPage, HasAllItsParts) {
  const std::string page = to_html({{"a.json", sample_result()}});
  EXPECT_EQ(page.find("@PAGE_"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
  for (const char* part :
       {"University of Washington", "vegaLite", "function makeTable", "</html>"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
}

TEST(HtmlPage, HasOnePlaceForTheDocumentAndOneForTheLibrary) {
  for (const char* place : {"{{DOCUMENT}}", "{{LIBRARY}}"}) {
    const size_t at = report_page_text().find(place);
    ASSERT_NE(at, std::string_view::npos);
    EXPECT_EQ(report_page_text().find(place, at + 1), std::string_view::npos);
  }
}

}  // namespace
}  // namespace flashbench
