#include "report/table.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <vector>

#include "report/cells.h"
#include "report/markdown.h"
#include "sample_result.h"

namespace flashbench {
namespace {

TEST(Table, RowsFitAHundredColumnsAndSayWhatWentWrong) {
  SweepResult result = sample_result();
  result.records[0].measurement->seconds.assign(6, 12.3456);
  result.records[0].memory->tracked.workspace = int64_t{8} << 30;
  const std::string table = to_table(result);
  std::istringstream text(table);
  int rows = 0;
  for (std::string line; std::getline(text, line);) {
    if (line.find("forward  ") == 0 || line.find("backward  ") == 0) continue;  // headings may wrap
    EXPECT_LE(line.size(), 100u) << line;
    rows += line.starts_with("naive") || line.starts_with("tiled") ? 1 : 0;
  }
  EXPECT_GE(rows, 4);
  EXPECT_NE(table.find("unsupported: it has no head_dim 64"), std::string::npos);
  EXPECT_NE(table.find("5 rows: 3 ok, 1 failed, 1 unsupported"), std::string::npos);
}

TEST(Table, NotesStandBelowTheirRowAndCoarseRowsAreCounted) {
  SweepResult result = sample_result();
  result.records[0].verdict.coarse = "dq is far off";
  result.records[0].verdict.tensors[0].rel_rms_err = 0.5;
  const std::string table = to_table(result);
  EXPECT_NE(table.find("      coarse\n  note: dq is far off\n"), std::string::npos) << table;
  EXPECT_NE(table.find("5 rows: 3 ok (1 coarse), 1 failed"), std::string::npos) << table;
  EXPECT_NE(table.find("rel rms"), std::string::npos);
  EXPECT_NE(to_markdown(result).find("| dq is far off |"), std::string::npos);
}

TEST(Table, CellsOfARowWithoutFiguresAreDashes) {
  const SweepResult result = sample_result();
  for (const Cell& cell : Cells(result).of(result.records[4])) {
    if (cell.heading == "provider" || cell.heading == "verdict") continue;
    EXPECT_EQ(cell.text, "-") << cell.heading;
  }
}

// A row that looked at all others again made a suite's table take minutes; this would take hours.
TEST(Table, ManyRowsOfManyRequestsArePrintedAtOnce) {
  SweepResult result = sample_result();
  Record record = result.records[4];
  record.item.problem.layout = Layout::ragged;
  record.item.problem.set_lengths(
      std::make_shared<const Lengths>(std::vector<RequestLengths>(4096, {1, 20})));
  result.records.assign(2000, record);
  EXPECT_NE(to_table(result).find("2000 rows: 2000 unsupported"), std::string::npos);
}

TEST(Table, HeadingsSayThatLengthsAreThoseOfTheLongestRequest) {
  Case item = sample_result().records[0].item;
  item.problem.layout = Layout::ragged;
  const auto heading = [&](const std::vector<RequestLengths>& requests) {
    item.problem.set_lengths(std::make_shared<const Lengths>(requests));
    return case_heading(item);
  };
  EXPECT_NE(heading({{3, 50}, {20, 7}}).find("  q up to 20  kv up to 50  "), std::string::npos);
  EXPECT_NE(heading({{3, 20}, {20, 7}}).find("  seq up to 20  "), std::string::npos);
  EXPECT_NE(heading({{3, 20}, {20, 7}}).find("  lengths 23q-27kv-"), std::string::npos);
}

TEST(Markdown, PipesAreEscaped) {
  const std::string markdown = to_markdown(sample_result());
  EXPECT_NE(markdown.find("\"far\" \\| wrong"), std::string::npos);
  EXPECT_NE(markdown.find("# sample"), std::string::npos);
}

}  // namespace
}  // namespace flashbench
