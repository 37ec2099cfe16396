// The results that are committed: files of older versions stay what they were.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "files/gzip.h"
#include "files/read_file.h"
#include "plan/axis.h"
#include "report/columns.h"
#include "report/json.h"

namespace flashbench {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxBytes = size_t{256} << 20;

// Baselines and journals match rows by key, which reading a result compares with its case's.
TEST(CommittedResults, KeepTheirKeysAndCases) {
  size_t rows = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(RESULTS_DIR)) {
    if (entry.path().extension() != ".gz") continue;
    const std::string bytes = read_file(entry.path(), kMaxBytes);
    const Json document = Json::parse(gunzip(bytes, kMaxBytes, entry.path().string()));
    for (const Json& row : document.at("results")) {
      if (!row.contains("case")) continue;
      const Case item = case_from_json(row.at("case"));
      EXPECT_EQ(row.at("key"), item.key()) << entry.path();
      EXPECT_EQ(case_to_json(item), row.at("case")) << entry.path();
      ++rows;
    }
  }
  EXPECT_GT(rows, 1000u);
}

TEST(CommittedResults, AreRead) {
  size_t rows = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(RESULTS_DIR)) {
    if (entry.path().extension() != ".gz") continue;
    const std::string text = gunzip(read_file(entry.path(), kMaxBytes), kMaxBytes, "results");
    const Json document = Json::parse(text);
    if (!document.contains("schema_version")) continue;
    EXPECT_NO_THROW(rows += result_from_json(text, entry.path().string()).records.size());
  }
  EXPECT_GT(rows, 1000u);
}

TEST(Columns, HaveEveryAxisOnce) {
  for (const Axis& axis : axes()) {
    const auto has_its_name = [&](const Column& column) { return column.name == axis.name; };
    EXPECT_EQ(std::count_if(columns().begin(), columns().end(), has_its_name),
              axis.role == Axis::Role::shorthand ? 0 : 1)
        << axis.name;
  }
}

}  // namespace
}  // namespace flashbench
