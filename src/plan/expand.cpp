#include "plan/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <unordered_set>
#include <utility>

#include "plan/json_text.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

// A case while the axes of its block fill it in; 0 for what is not given.
struct Draft {
  Case result;
  int64_t hidden = 0;
  int64_t total_tokens = 0;
  bool kv_heads_given = false;
};

// One axis: what each of its values does to a draft.
using Axis = std::vector<std::function<void(Draft&)>>;

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
  bool has(const char* key) const { return json_.contains(key); }
  bool takes(const char* key, const char* value) const;
  void issue(const char* key, std::string message);
  void exclude(const char* key, const char* other, const char* why);
  void check_files();

  template <typename T, typename Set>
  void add_axis(const char* key, Set set);
  template <typename Enum, typename Set>
  void add_names(const char* key, Set set);
  void add_axes();

  void multiply(size_t axis, const Draft& draft, const std::function<void(Case)>& take);
  bool divide(const char* key, int64_t total, const char* divisor_key, int64_t divisor,
              int64_t& quotient);
  bool finish(Draft& draft);
  void set_files(InputSpec& inputs, Pass pass) const;

  const Json& json_;
  std::string pointer_;
  const std::filesystem::path& folder_;
  std::vector<ConfigIssue>& issues_;
  std::set<std::pair<std::string, std::string>> said_;  // many cases of a block share a fault
  std::vector<Axis> axes_;
};

std::vector<Json> values_of(const Json& axis) {
  if (!axis.is_array()) return {axis};
  return {axis.begin(), axis.end()};
}

void Block::issue(const char* key, std::string message) {
  std::string pointer = *key ? pointer_child(pointer_, key) : pointer_;
  if (said_.emplace(pointer, message).second) {
    issues_.push_back({std::move(pointer), std::move(message)});
  }
}

void Block::exclude(const char* key, const char* other, const char* why) {
  if (!has(key) || !has(other)) return;
  issue(key, fmt::format("cannot be combined with \"{}\": {}", other, why));
}

bool Block::takes(const char* key, const char* value) const {
  if (!has(key)) return false;
  const std::vector<Json> values = values_of(json_.at(key));
  return std::find(values.begin(), values.end(), value) != values.end();
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
  }
}

bool Block::check_keys() {
  const size_t before = issues_.size();
  exclude("seq", "q_len", "seq sets both lengths");
  exclude("seq", "kv_len", "seq sets both lengths");
  exclude("total_tokens", "batch", "the batch is total_tokens / seq");
  exclude("hidden", "q_heads", "q_heads is hidden / head_dim");
  if (!has("seq") && !(has("q_len") && has("kv_len"))) {
    issue("", has("q_len")    ? "lacks the key \"kv_len\" beside \"q_len\""
              : has("kv_len") ? "lacks the key \"q_len\" beside \"kv_len\""
                              : "lacks the lengths: \"seq\", or \"q_len\" and \"kv_len\"");
  }
  if (!has("q_heads") && !has("hidden")) issue("", "lacks the heads: \"q_heads\" or \"hidden\"");
  check_files();
  if (issues_.size() != before) return false;
  add_axes();
  return true;
}

template <typename T, typename Set>
void Block::add_axis(const char* key, Set set) {
  if (!has(key)) return;
  Axis axis;
  for (const Json& value : values_of(json_.at(key))) {
    axis.push_back([set, v = value.get<T>()](Draft& draft) { set(draft, v); });
  }
  axes_.push_back(std::move(axis));
}

template <typename Enum, typename Set>
void Block::add_names(const char* key, Set set) {
  add_axis<std::string>(
      key, [set](Draft& draft, const std::string& text) { set(draft, parse<Enum>(text).value()); });
}

void Block::add_axes() {
  add_names<Pass>("pass", [](Draft& d, Pass v) { d.result.problem.pass = v; });
  add_names<Dtype>("dtype", [](Draft& d, Dtype v) { d.result.problem.dtype = v; });
  add_names<Mask>("mask", [](Draft& d, Mask v) { d.result.problem.mask = v; });
  add_names<Layout>("layout", [](Draft& d, Layout v) { d.result.problem.layout = v; });
  add_axis<int64_t>("head_dim", [](Draft& d, int64_t v) { d.result.problem.head_dim = v; });
  add_axis<double>("scale", [](Draft& d, double v) { d.result.problem.scale = v; });
  add_axis<int64_t>("q_heads", [](Draft& d, int64_t v) { d.result.problem.q_heads = v; });
  add_axis<int64_t>("hidden", [](Draft& d, int64_t v) { d.hidden = v; });
  add_axis<int64_t>("kv_heads", [](Draft& d, int64_t v) {
    d.result.problem.kv_heads = v;
    d.kv_heads_given = true;
  });
  add_axis<int64_t>("batch", [](Draft& d, int64_t v) { d.result.problem.batch = v; });
  add_axis<int64_t>("total_tokens", [](Draft& d, int64_t v) { d.total_tokens = v; });
  add_axis<int64_t>("seq", [](Draft& d, int64_t v) {
    d.result.problem.q_len = v;
    d.result.problem.kv_len = v;
  });
  add_axis<int64_t>("q_len", [](Draft& d, int64_t v) { d.result.problem.q_len = v; });
  add_axis<int64_t>("kv_len", [](Draft& d, int64_t v) { d.result.problem.kv_len = v; });
  add_names<Distribution>("distribution",
                          [](Draft& d, Distribution v) { d.result.inputs.distribution = v; });
  add_names<Placement>("placement", [](Draft& d, Placement v) { d.result.placement = v; });
  add_axis<uint64_t>("seed", [](Draft& d, uint64_t v) { d.result.inputs.seed = v; });
}

double Block::size() const {
  double cases = 1;
  for (const Axis& axis : axes_) cases *= static_cast<double>(axis.size());
  return cases;
}

void Block::expand(const std::function<void(Case)>& take) {
  multiply(0, Draft{}, take);
}

void Block::multiply(size_t axis, const Draft& draft, const std::function<void(Case)>& take) {
  if (axis == axes_.size()) {
    Draft finished = draft;
    if (finish(finished)) take(std::move(finished.result));
    return;
  }
  for (const auto& set : axes_[axis]) {
    Draft next = draft;
    set(next);
    multiply(axis + 1, next, take);
  }
}

bool Block::divide(const char* key, int64_t total, const char* divisor_key, int64_t divisor,
                   int64_t& quotient) {
  if (total % divisor != 0) {
    issue(key, fmt::format("expected a multiple of {} ({}), got {}", divisor_key, divisor, total));
    return false;
  }
  quotient = total / divisor;
  return true;
}

bool Block::finish(Draft& draft) {
  Problem& p = draft.result.problem;
  const char* length_key = has("seq") ? "seq" : "q_len";
  if (has("hidden") && !divide("hidden", draft.hidden, "head_dim", p.head_dim, p.q_heads)) {
    return false;
  }
  if (has("total_tokens") &&
      !divide("total_tokens", draft.total_tokens, length_key, p.q_len, p.batch)) {
    return false;
  }
  if (!draft.kv_heads_given) p.kv_heads = p.q_heads;
  if (p.q_heads % p.kv_heads != 0) {
    issue("kv_heads",
          fmt::format("expected a divisor of q_heads ({}), got {}", p.q_heads, p.kv_heads));
    return false;
  }
  const double rows =
      static_cast<double>(p.batch) * static_cast<double>(p.q_heads) * static_cast<double>(p.q_len);
  const double keys = static_cast<double>(p.batch) * static_cast<double>(p.kv_heads) *
                      static_cast<double>(p.kv_len);
  const double elements = std::max(rows, keys) * static_cast<double>(p.head_dim);
  if (elements > kMaxTensorElements) {
    issue("",
          fmt::format("expected tensors of at most 2^40 elements, got {:.3g} (batch {}, q_heads "
                      "{}, kv_heads {}, q_len {}, kv_len {}, head_dim {})",
                      elements, p.batch, p.q_heads, p.kv_heads, p.q_len, p.kv_len, p.head_dim));
    return false;
  }
  const double scores = rows * static_cast<double>(p.kv_len);
  if (scores > kMaxScores) {
    issue("",
          fmt::format("expected at most 2^50 scores, got {:.3g} (batch {}, q_heads {}, q_len {}, "
                      "kv_len {})",
                      scores, p.batch, p.q_heads, p.q_len, p.kv_len));
    return false;
  }
  if (draft.result.inputs.distribution == Distribution::files) {
    set_files(draft.result.inputs, p.pass);
  }
  return true;
}

// Files have no seed, and the forward pass no dO; cases that differ in nothing else are the same.
void Block::set_files(InputSpec& inputs, Pass pass) const {
  const auto path = [&](const char* key) {
    return (folder_ / json_.at(key).get<std::string>()).lexically_normal().string();
  };
  inputs = {.distribution = Distribution::files,
            .q = path("q"),
            .k = path("k"),
            .v = path("v"),
            .d_o = pass == Pass::backward ? path("d_o") : ""};
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
