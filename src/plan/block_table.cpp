#include "plan/block_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/error.h"
#include "files/npy.h"
#include "plan/json_text.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<int32_t>>;

constexpr int64_t kMostPages = BlockTable::kNoPage;
constexpr std::string_view kExample = "3,1_0,4,2";

// The part of `rest` before the next `separator`, which both lose; all of it if there is none.
std::string_view take_until(std::string_view& rest, char separator) {
  const size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == rest.npos ? rest.size() : end + 1);
  return part;
}

int32_t page_in(std::string_view text, size_t request, size_t number) {
  int32_t page = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), page);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(
        fmt::format("/table: request {}, page {}: expected a number, as in {}, found \"{}\"",
                    request, number, kExample, text.substr(0, 40)));
  }
  return page;
}

Rows rows_of_text(std::string_view text) {
  Rows rows(static_cast<size_t>(std::count(text.begin(), text.end(), '_')) + 1);
  for (size_t request = 0; request < rows.size(); ++request) {
    std::string_view row = take_until(text, '_');
    while (!row.empty()) {
      rows[request].push_back(page_in(take_until(row, ','), request, rows[request].size()));
    }
  }
  return rows;
}

Rows rows_of_file(const std::string& path) {
  const NpyArray array = read_npy(path);
  if (array.type != NpyArray::Type::int32 || array.shape.size() != 2) {
    throw BadInput(fmt::format(
        "{}: expected int32 of two dimensions, requests and their pages, found {} of shape ({})",
        path, name(array.type), fmt::join(array.shape, ", ")));
  }
  Rows rows(static_cast<size_t>(array.shape[0]));
  const auto width = static_cast<size_t>(array.shape[1]);
  for (size_t request = 0; request < rows.size(); ++request) {
    rows[request].resize(width);
    if (width == 0) continue;
    std::memcpy(rows[request].data(), array.data.data() + request * width * sizeof(int32_t),
                width * sizeof(int32_t));
  }
  return rows;
}

// The entries that are no page take no room in the text.
void trim(Rows& rows) {
  for (std::vector<int32_t>& row : rows) {
    while (!row.empty() && row.back() == BlockTable::kNoPage) row.pop_back();
  }
}

BlockTable table_of(Rows rows, int64_t pages) {
  trim(rows);
  size_t width = 0;
  for (const std::vector<int32_t>& row : rows) width = std::max(width, row.size());
  ++width;
  if (rows.empty() || rows.size() * width > static_cast<size_t>(kMostTableEntries)) {
    throw std::invalid_argument(fmt::format("expected a table of 1 to {} entries, found {} x {}",
                                            kMostTableEntries, rows.size(), width));
  }
  BlockTable table(static_cast<int64_t>(rows.size()), static_cast<int64_t>(width), pages);
  for (size_t request = 0; request < rows.size(); ++request) {
    for (size_t i = 0; i < rows[request].size(); ++i) {
      table.at(static_cast<int64_t>(request), static_cast<int64_t>(i)) = rows[request][i];
    }
  }
  return table;
}

std::string text_of(const BlockTable& table) {
  std::string text;
  for (int64_t b = 0; b < table.requests(); ++b) {
    if (b > 0) text += '_';
    int64_t pages = table.width();
    while (pages > 0 && table.at(b, pages - 1) == BlockTable::kNoPage) --pages;
    for (int64_t i = 0; i < pages; ++i) {
      fmt::format_to(std::back_inserter(text), "{}{}", i > 0 ? "," : "", table.at(b, i));
    }
  }
  return text;
}

int64_t pages_in(const StrictJson& json) {
  if (!json.contains("pages")) return 0;
  const int64_t pages = json.at("pages");
  if (pages < 0 || pages > kMostPages) {
    json.at("pages").fail(fmt::format("an integer from 0 to {}", kMostPages));
  }
  return pages;
}

void require_known_keys(const StrictJson& json) {
  for (const auto& member : json.json().items()) {
    const std::string& key = member.key();
    if (key != "pages" && key != "table" && key != "file") {
      throw std::invalid_argument(fmt::format("/{}: expected pages, table or file", key));
    }
  }
}

}  // namespace

BlockTable read_block_table(const StrictJson& json) {
  const bool text = json.contains("table"), file = json.contains("file");
  if (text == file) {
    throw std::invalid_argument("expected exactly one of the keys table, file, found " +
                                std::string(text ? "both" : "none"));
  }
  require_known_keys(json);
  const int64_t pages = pages_in(json);
  if (file) {
    try {
      return table_of(rows_of_file(json.at("file")), pages);
    } catch (const BadInput& error) {
      throw std::invalid_argument(error.what());
    }
  }
  return table_of(rows_of_text(std::string{json.at("table")}), pages);
}

Json block_table_json(const BlockTable& table) {
  return {{"pages", table.pages()}, {"table", text_of(table)}};
}

std::string block_table_argument(const BlockTable& table) {
  return fmt::format("{}:{}", table.pages(), text_of(table));
}

Json block_table_schema() {
  const Json text{{"type", "string"}, {"minLength", 1}};
  return {{"type", "object"},
          {"additionalProperties", false},
          {"properties",
           {{"pages", {{"type", "integer"}, {"minimum", 0}, {"maximum", kMostPages}}},
            {"table", {{"type", "string"}}},
            {"file", text}}}};
}

Json block_table_of_option(const std::string& text) {
  if (text.starts_with('{')) return parse_json_option(text);
  int64_t pages = 0;
  const char* const begin = text.data();
  const auto [end, error] = std::from_chars(begin, begin + text.size(), pages);
  if (error != std::errc() || end == begin + text.size() || *end != ':') return {{"file", text}};
  return {{"pages", pages}, {"table", text.substr(static_cast<size_t>(end - begin) + 1)}};
}

}  // namespace flashbench
