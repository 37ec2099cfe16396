#include "plan/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <unordered_set>
#include <utility>

#include "plan/axis.h"
#include "plan/json_text.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

// The order of cases is a contract, which results and journals keep: axes vary in this order, the
// first the slowest, and others after them.
const std::vector<std::string_view> kSlowestFirst{
    "pass",    "dtype",  "mask",         "layout",    "head_dim",     "scale",
    "q_heads", "hidden", "kv_heads",     "batch",     "total_tokens", "seq",
    "q_len",   "kv_len", "distribution", "placement", "seed"};

class Block {
 public:
  Block(const Json& json, std::string pointer, const std::filesystem::path& folder,
        std::vector<ConfigIssue>& issues)
      : json_(json), pointer_(std::move(pointer)), folder_(folder), issues_(issues) {}

  // Whether the keys go together.
  bool check_keys();

  // How many cases the axes multiply to, which may be far more than there is memory for.
  double size() const;

  // Calls `take` with each valid case.
  void expand(const std::function<void(Case)>& take);

 private:
  bool has(std::string_view key) const { return json_.contains(key); }
  bool takes(const char* key, const char* value) const;
  void issue(std::string_view key, std::string message);
  void check_shorthands();
  void check_files();

  void multiply(size_t given, const std::function<void(Case)>& take);
  std::optional<Case> finish();
  bool fits(const Problem&);
  std::string path_of(const char* key) const;
  void take_from_folder(Json& value) const;
  void set_files(InputSpec& inputs, Pass pass) const;

  const Json& json_;
  std::string pointer_;
  const std::filesystem::path& folder_;
  std::vector<ConfigIssue>& issues_;
  std::set<std::pair<std::string, std::string>> said_;  // many cases of a block share a fault

  // The axes that the block gives, the slowest first; and the values of the case at hand.
  std::vector<std::pair<std::string_view, std::vector<Json>>> given_;
  AxisValues values_;
};

std::vector<Json> values_of(const Json& axis) {
  if (!axis.is_array()) return {axis};
  return {axis.begin(), axis.end()};
}

void Block::issue(std::string_view key, std::string message) {
  std::string pointer = key.empty() ? pointer_ : pointer_child(pointer_, key);
  if (said_.emplace(pointer, message).second) {
    issues_.push_back({std::move(pointer), std::move(message)});
  }
}

void Block::check_shorthands() {
  for (const Axis& shorthand : axes()) {
    for (const std::string_view other : shorthand.sets) {
      if (!has(shorthand.name) || !has(other)) continue;
      issue(shorthand.name,
            fmt::format("cannot be combined with \"{}\": {}", other, shorthand.why));
    }
  }
}

bool Block::takes(const char* key, const char* value) const {
  if (!has(key)) return false;
  const std::vector<Json> values = values_of(json_.at(key));
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::string Block::path_of(const char* key) const {
  return (folder_ / json_.at(key).get<std::string>()).lexically_normal().string();
}

void Block::check_files() {
  const bool from_files = takes("distribution", "files");
  const bool backward = takes("pass", "backward");
  for (const char* key : {"q", "k", "v", "d_o"}) {
    const bool is_read = from_files && (backward || std::string_view(key) != "d_o");
    if (is_read && !has(key)) {
      issue("", fmt::format("lacks the key \"{}\": the path of a .npy file, for distribution "
                            "\"files\"{}",
                            key, std::string_view(key) == "d_o" ? " and pass \"backward\"" : ""));
    }
    if (!is_read && has(key)) {
      issue(key, from_files ? "is read for pass \"backward\" only"
                            : "is read for distribution \"files\" only");
    }
    // Reading a result replaces such characters, and would not find the case of this path again.
    if (is_read && has(key) && path_of(key) != printable(path_of(key))) {
      issue(key, "expected a path without control characters");
    }
  }
}

bool Block::check_keys() {
  const size_t before = issues_.size();
  check_shorthands();
  if (!has("lengths") && !has("seq") && !(has("q_len") && has("kv_len"))) {
    issue("", has("q_len") ? "lacks the key \"kv_len\" beside \"q_len\""
              : has("kv_len")
                  ? "lacks the key \"q_len\" beside \"kv_len\""
                  : "lacks the lengths: \"seq\", \"q_len\" and \"kv_len\", or \"lengths\"");
  }
  if (!has("q_heads") && !has("hidden")) issue("", "lacks the heads: \"q_heads\" or \"hidden\"");
  check_files();
  if (issues_.size() != before) return false;
  for (const Axis* axis : axes_in_order(kSlowestFirst)) {
    if (!has(axis->name)) continue;
    std::vector<Json> values = values_of(json_.at(axis->name));
    for (Json& value : values) take_from_folder(value);
    given_.emplace_back(axis->name, std::move(values));
  }
  return true;
}

double Block::size() const {
  double cases = 1;
  for (const auto& [axis, values] : given_) cases *= static_cast<double>(values.size());
  return cases;
}

void Block::expand(const std::function<void(Case)>& take) {
  multiply(0, take);
}

void Block::multiply(size_t given, const std::function<void(Case)>& take) {
  if (given == given_.size()) {
    if (std::optional<Case> finished = finish()) take(std::move(*finished));
    return;
  }
  const auto& [axis, values] = given_[given];
  for (const Json& value : values) {
    values_[axis] = value;
    multiply(given + 1, take);
  }
}

// The case of the values at hand, if they go together.
std::optional<Case> Block::finish() {
  try {
    Case result = make_case(values_);
    if (!fits(result.problem)) return std::nullopt;
    if (result.inputs.distribution == Distribution::files) {
      set_files(result.inputs, result.problem.pass);
    }
    if (const auto wrong = result.invalid()) {
      issue("", *wrong);
      return std::nullopt;
    }
    return result;
  } catch (const BadAxis& bad) {
    issue(bad.name, bad.what());
    return std::nullopt;
  }
}

bool Block::fits(const Problem& p) {
  if (p.is_ragged() && !p.lengths) {
    issue("layout", "ragged needs \"lengths\", which say where each request begins");
    return false;
  }
  if (p.q_heads % p.kv_heads != 0) {
    issue("kv_heads",
          fmt::format("expected a divisor of q_heads ({}), got {}", p.q_heads, p.kv_heads));
    return false;
  }
  // Sizes are not bounded yet: their products may exceed 64 bits.
  const auto tensor_rows = [&](int64_t heads, int64_t length, int64_t tokens) {
    const double of_head = p.is_ragged()
                               ? static_cast<double>(tokens)
                               : static_cast<double>(p.batch) * static_cast<double>(length);
    return static_cast<double>(heads) * of_head;
  };
  const double rows = tensor_rows(p.q_heads, p.q_len, p.lengths ? p.q_tokens() : 0);
  const double keys = tensor_rows(p.kv_heads, p.kv_len, p.lengths ? p.kv_tokens() : 0);
  const int64_t dim = std::max(p.head_dim, p.value_dim());
  const double elements = std::max(rows, keys) * static_cast<double>(dim);
  if (elements > kMaxTensorElements) {
    issue("",
          fmt::format("expected tensors of at most 2^40 elements, got {:.3g} (batch {}, q_heads "
                      "{}, kv_heads {}, q_len {}, kv_len {}, head_dim {})",
                      elements, p.batch, p.q_heads, p.kv_heads, p.q_len, p.kv_len, dim));
    return false;
  }
  const double scores = static_cast<double>(p.q_heads) * p.sum_of_requests([](const Problem& one) {
    return static_cast<double>(one.q_len) * static_cast<double>(one.kv_len);
  });
  if (scores > kMaxScores) {
    issue("",
          fmt::format("expected at most 2^50 scores, got {:.3g} (batch {}, q_heads {}, q_len {}, "
                      "kv_len {})",
                      scores, p.batch, p.q_heads, p.q_len, p.kv_len));
    return false;
  }
  return true;
}

// The path of a file in an object is relative to the config's folder.
void Block::take_from_folder(Json& value) const {
  if (!value.is_object() || !value.contains("file")) return;
  value["file"] = (folder_ / value.at("file").get<std::string>()).lexically_normal().string();
}

// Files have no seed, and the forward pass no dO; cases that differ in nothing else are the same.
void Block::set_files(InputSpec& inputs, Pass pass) const {
  inputs = {.distribution = Distribution::files,
            .q = path_of("q"),
            .k = path_of("k"),
            .v = path_of("v"),
            .d_o = pass == Pass::backward ? path_of("d_o") : ""};
}

// Pointers of the blocks that have an issue at or below them.
std::unordered_set<std::string> faulty_blocks(const std::vector<ConfigIssue>& issues) {
  constexpr std::string_view kBlocks = "/cases/";
  std::unordered_set<std::string> blocks;
  for (const ConfigIssue& issue : issues) {
    if (!issue.pointer.starts_with(kBlocks)) continue;
    blocks.insert(issue.pointer.substr(0, issue.pointer.find('/', kBlocks.size())));
  }
  return blocks;
}

}  // namespace

std::vector<Case> expand_cases(const Json& blocks, const std::filesystem::path& folder,
                               std::vector<ConfigIssue>& issues) {
  std::vector<Case> cases;
  const std::unordered_set<std::string> faulty = faulty_blocks(issues);
  std::unordered_set<std::string> keys;
  double total = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::string pointer = fmt::format("/cases/{}", i);
    if (faulty.count(pointer) != 0) continue;
    Block block(blocks[i], pointer, folder, issues);
    if (!block.check_keys()) continue;
    total += block.size();
    if (total > static_cast<double>(kMaxCases)) {
      issues.push_back(
          {pointer, fmt::format("expected at most {} cases in a sweep, got {:.6g} up to "
                                "this block, whose axes multiply to {:.6g}",
                                kMaxCases, total, block.size())});
      break;
    }
    block.expand([&](Case c) {
      if (keys.insert(c.key()).second) cases.push_back(std::move(c));
    });
  }
  return cases;
}

}  // namespace flashbench
