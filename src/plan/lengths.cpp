#include "plan/lengths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <vector>

#include "files/read_file.h"
#include "plan/batch_spec.h"
#include "plan/json_text.h"
#include "plan/length_patterns.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;
using RequestList = std::vector<RequestLengths>;

constexpr size_t kMostFileBytes = size_t{64} << 20;

int64_t number_in(const StrictJson& json, int64_t least, int64_t most) {
  const int64_t number = json;
  if (number < least || number > most) {
    json.fail(fmt::format("a number from {} to {}", least, most));
  }
  return number;
}

int64_t request_count(const StrictJson& json) {
  return number_in(json.at("batch"), 1, kMostRequests);
}

double fraction_in(const StrictJson& json) {
  const double fraction = json;
  if (!(fraction >= 0 && fraction <= 1)) json.fail("a number from 0 to 1");
  return fraction;
}

uint64_t seed_of(const StrictJson& json) {
  return json.contains("seed") ? uint64_t{json.at("seed")} : 1;
}

template <typename Values>
auto one_of(const Values& values, const StrictJson& json) {
  std::vector<std::string_view> names;
  for (const auto& value : values) names.push_back(name(value));
  const std::string text = json;
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end()) json.fail(fmt::format("one of {}", fmt::join(names, ", ")));
  return values[static_cast<size_t>(found - names.begin())];
}

// ---- the forms

RequestList from_list(const StrictJson& json) {
  RequestList requests;
  for (const StrictJson& request : json.at("list").elements()) {
    const std::vector<StrictJson> pair = request.elements();
    if (pair.size() != 2) request.fail("[q_len, kv_len]");
    requests.push_back(
        {number_in(pair[0], 0, kLongestRequest), number_in(pair[1], 0, kLongestRequest)});
  }
  return requests;
}

RequestList from_batch_spec(const StrictJson& json) {
  try {
    return parse_batch_spec(std::string{json.at("batch_spec")});
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("/batch_spec: {}", error.what()));
  }
}

void sort_lengths(const StrictJson& json, std::vector<int64_t>& kv_lens) {
  const auto sort = one_of(kLengthSorts, json.at("sort"));
  std::sort(kv_lens.begin(), kv_lens.end());
  if (sort == LengthSort::longest_first) std::reverse(kv_lens.begin(), kv_lens.end());
}

// Every request has as many queries, or as many as keys.
RequestList with_queries(const StrictJson& json, std::vector<int64_t> kv_lens) {
  if (json.contains("zero_fraction")) {
    set_some_to_zero(kv_lens, fraction_in(json.at("zero_fraction")), seed_of(json));
  }
  if (json.contains("sort")) sort_lengths(json, kv_lens);
  RequestList requests;
  for (const int64_t kv_len : kv_lens) {
    const int64_t q_len =
        json.contains("q_len") ? number_in(json.at("q_len"), 1, kLongestRequest) : kv_len;
    requests.push_back({q_len, kv_len});
  }
  return requests;
}

RequestList from_pattern(const StrictJson& json) {
  return with_queries(json, lengths_by(one_of(kLengthPatterns, json.at("pattern")),
                                       number_in(json.at("kv_len"), 1, kLongestRequest),
                                       request_count(json), seed_of(json)));
}

RequestList from_zipf(const StrictJson& json) {
  return with_queries(json, zipf_lengths(number_in(json.at("zipf"), 1, kLongestZipf),
                                         request_count(json), seed_of(json)));
}

RequestList from_quantiles(const StrictJson& json) {
  return with_queries(json, lengths_by(one_of(kLengthQuantiles, json.at("quantiles")),
                                       request_count(json), seed_of(json)));
}

// A line without its line break, and without the carriage return of other systems.
std::string_view take_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

int64_t length_in(std::string_view text) {
  int64_t length = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && length >= 0 && length <= kLongestRequest ? length : -1;
}

RequestList from_file(const StrictJson& json) {
  constexpr std::string_view kHeader = "q_len,kv_len";
  const std::string path = json.at("file");
  // An absolute path is never standard input, as "-" would be.
  const std::string text = read_file(std::filesystem::absolute(path), kMostFileBytes);
  const auto wrong = [&](size_t line, std::string_view expected, std::string_view found) {
    throw std::invalid_argument(fmt::format("/file: {}, line {}: expected {}, found \"{}\"", path,
                                            line, expected, found.substr(0, 40)));
  };
  std::string_view rest = text;
  if (constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
      rest.starts_with(kByteOrderMark)) {
    rest.remove_prefix(kByteOrderMark.size());
  }
  if (const std::string_view header = take_line(rest); header != kHeader) wrong(1, kHeader, header);
  RequestList requests;
  for (size_t number = 2; !rest.empty(); ++number) {
    const std::string_view line = take_line(rest);
    const size_t comma = line.find(',');
    const int64_t q_len = length_in(line.substr(0, comma));
    const int64_t kv_len = comma == line.npos ? -1 : length_in(line.substr(comma + 1));
    if (q_len < 0 || kv_len < 0) {
      wrong(number, fmt::format("two lengths from 0 to {}, as in 16,512", kLongestRequest), line);
    }
    requests.push_back({q_len, kv_len});
  }
  return requests;
}

struct Form {
  std::string_view key;
  std::vector<std::string_view> others;  // keys that go with it
  RequestList (*read)(const StrictJson&);
};

const std::array<Form, 6>& forms() {
  static const std::array<Form, 6> table{{
      {"list", {}, from_list},
      {"batch_spec", {}, from_batch_spec},
      {"pattern", {"batch", "q_len", "kv_len", "seed", "zero_fraction", "sort"}, from_pattern},
      {"zipf", {"batch", "q_len", "seed", "zero_fraction", "sort"}, from_zipf},
      {"quantiles", {"batch", "q_len", "seed", "zero_fraction", "sort"}, from_quantiles},
      {"file", {}, from_file},
  }};
  return table;
}

const Form& form_of(const StrictJson& json) {
  std::vector<std::string_view> keys, found;
  const Form* form = nullptr;
  for (const Form& one : forms()) {
    keys.push_back(one.key);
    if (!json.contains(std::string(one.key).c_str())) continue;
    found.push_back(one.key);
    form = &one;
  }
  if (found.size() != 1) {
    throw std::invalid_argument(
        fmt::format("expected exactly one of the keys {}, found {}", fmt::join(keys, ", "),
                    found.empty() ? "none" : fmt::format("{}", fmt::join(found, " and "))));
  }
  return *form;
}

void require_known_keys(const StrictJson& json, const Form& form) {
  for (const auto& member : json.json().items()) {
    const std::string& key = member.key();
    const auto known = std::find(form.others.begin(), form.others.end(), key);
    if (key == form.key || known != form.others.end()) continue;
    throw std::invalid_argument(fmt::format("/{}: does not go with {}", key, form.key));
  }
}

// ---- the schema

Json integer_schema(int64_t least, int64_t most) {
  return {{"type", "integer"}, {"minimum", least}, {"maximum", most}};
}

template <typename Values>
Json names_schema(const Values& values) {
  Json names = Json::array();
  for (const auto& value : values) names.push_back(name(value));
  return {{"type", "string"}, {"enum", names}};
}

}  // namespace

std::shared_ptr<const Lengths> make_lengths(const std::vector<RequestLengths>& requests) {
  if (requests.empty() || static_cast<int64_t>(requests.size()) > kMostRequests) {
    throw std::invalid_argument(
        fmt::format("expected from 1 to {} requests, found {}", kMostRequests, requests.size()));
  }
  const bool any = std::any_of(requests.begin(), requests.end(),
                               [](const RequestLengths& request) { return request.q_len > 0; });
  if (!any) throw std::invalid_argument("expected at least one query, found none in any request");
  return std::make_shared<const Lengths>(requests);
}

std::shared_ptr<const Lengths> read_lengths(const StrictJson& json) {
  const Form& form = form_of(json);
  require_known_keys(json, form);
  return make_lengths(form.read(json));
}

Json lengths_schema() {
  const Json length = integer_schema(0, kLongestRequest);
  const Json at_least_1 = integer_schema(1, kLongestRequest);
  const Json text{{"type", "string"}, {"minLength", 1}};
  const Json pair{{"type", "array"}, {"minItems", 2}, {"maxItems", 2}, {"items", length}};
  const Json list{{"type", "array"}, {"minItems", 1}, {"maxItems", kMostRequests}, {"items", pair}};
  return {{"type", "object"},
          {"additionalProperties", false},
          {"properties",
           {{"list", list},
            {"batch_spec", text},
            {"pattern", names_schema(kLengthPatterns)},
            {"zipf", integer_schema(1, kLongestZipf)},
            {"quantiles", names_schema(kLengthQuantiles)},
            {"file", text},
            {"batch", integer_schema(1, kMostRequests)},
            {"q_len", at_least_1},
            {"kv_len", at_least_1},
            {"zero_fraction", {{"type", "number"}, {"minimum", 0}, {"maximum", 1}}},
            {"sort", names_schema(kLengthSorts)},
            {"seed", integer_schema(0, 9007199254740991)}}}};  // 2^53 - 1, as every reader has it
}

Json lengths_of_option(const std::string& text) {
  if (text.starts_with('{')) return parse_json_option(text);
  return {{"batch_spec", text}};
}

}  // namespace flashbench
