#include "report/result_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "plan/shard.h"
#include "report/shard_part.h"
#include "verify/verdict.h"

namespace flashbench {

namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr double kMaxLength = 0x1p30;
constexpr double kMaxRows = 0x1p44;  // batch * heads * length

// The tensors that a pass must compute; the logsumexp is judged where there is one.
std::set<std::string> outputs_of(Pass pass) {
  if (pass == Pass::forward) return {"o"};
  return {"dq", "dk", "dv"};
}

// Outputs that passed did so by each tensor of the pass, and by the judge's own figures.
void require_passed_tensors(const Verdict& verdict, Pass pass, const StrictJson& correctness) {
  const std::vector<StrictJson> tensors = correctness.at("tensors").elements();
  std::set<std::string> missing = outputs_of(pass);
  for (const TensorError& error : verdict.tensors) missing.erase(error.tensor);
  if (!missing.empty()) {
    correctness.at("tensors").fail(
        fmt::format("{} among the tensors that passed", fmt::join(missing, ", ")));
  }
  if (!(verdict.checked_fraction > 0)) {
    correctness.at("checked_fraction").fail("a share above 0, as correctness is passed");
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorError& error = verdict.tensors[i];
    if (!error.passed) tensors[i].at("passed").fail("true, as correctness is passed");
    if (error.nonfinite != 0) tensors[i].at("nonfinite").fail("0, as the tensor passed");
    if (!(error.lambda <= verify::kFailLambda)) {
      tensors[i].at("lambda").fail(
          fmt::format("at most {:g}, as the tensor passed", verify::kFailLambda));
    }
  }
}

// What files of inputs held, by path (plan/input_files.h).
void require_input_files(const StrictJson& meta) {
  if (!meta.contains("inputs")) return;
  const StrictJson inputs = meta.at("inputs");
  if (!inputs.json().is_object()) inputs.fail("an object");
  for (const auto& [path, held] : inputs.json().items()) {
    static_cast<void>(std::string{inputs.at(path.c_str())});
  }
}

// The providers of each case, in the order of the rows, without those of other results that
// `report` has put beside them.
struct OwnRows {
  std::vector<std::string> keys;
  std::map<std::string, std::set<std::string>> providers;
};
OwnRows own_rows(const std::vector<Record>& records) {
  OwnRows rows;
  for (const Record& record : records) {
    if (!record.source.empty()) continue;
    const std::string key = record.item.key();
    if (!rows.providers.contains(key)) rows.keys.push_back(key);
    rows.providers[key].insert(record.provider);
  }
  return rows;
}

}  // namespace

int64_t byte_count(const StrictJson& json) {
  const int64_t bytes = json;
  if (bytes < 0 || bytes > kMaxBytes) json.fail("a number of bytes");
  return bytes;
}

double not_negative(const StrictJson& json) {
  const double value = json;
  if (!(value >= 0)) json.fail("a number of at least 0");
  return value;
}

double not_negative_or_nan(const StrictJson& json) {
  return json.is_null() ? json.number_or_nan() : not_negative(json);
}

int64_t count(const StrictJson& json) {
  const int64_t value = json;
  if (value < 0) json.fail("an integer of at least 0");
  return value;
}

void require_countable(const Problem& p) {
  const double heads = static_cast<double>(p.batch) * static_cast<double>(p.q_heads);
  const double longest = static_cast<double>(std::max(p.q_len, p.kv_len));
  const double rows = p.is_ragged() ? static_cast<double>(std::max(p.q_tokens(), p.kv_tokens())) *
                                          static_cast<double>(p.q_heads)
                                    : heads * longest;
  if (heads > kMaxRows || longest > kMaxLength || rows > kMaxRows) {
    throw std::invalid_argument(
        fmt::format("expected a batch, heads and lengths that memory could hold, got batch {}, "
                    "q_heads {}, q_len {}, kv_len {}",
                    p.batch, p.q_heads, p.q_len, p.kv_len));
  }
}

void require_environment(const StrictJson& json) {
  const auto text_if_there = [](const StrictJson& object, const char* key) {
    if (object.contains(key)) static_cast<void>(std::string{object.at(key)});
  };
  text_if_there(json.at("config"), "name");
  for (const char* key : {"version", "git_commit", "started"}) text_if_there(json.at("meta"), key);
  // Other results are added to these.
  for (const char* key : {"beside", "shards"}) {
    if (json.at("meta").contains(key)) static_cast<void>(json.at("meta").at(key).elements());
  }
  require_input_files(json.at("meta"));
  static_cast<void>(shard_part(json.at("meta").json()));
  const std::vector<StrictJson> devices = json.at("devices").elements();
  if (devices.empty()) json.at("devices").fail("at least one device");
  for (const StrictJson& device : devices) {
    text_if_there(device, "name");
    text_if_there(device, "instructions");
    if (device.contains("threads")) static_cast<void>(int{device.at("threads")});
  }
}

void require_verified(const Record& record, const StrictJson& row) {
  const StrictJson correctness = row.at("correctness");
  if (record.status == Status::ok && record.verdict.status == Verdict::Status::failed) {
    row.at("status").fail("failed, as its correctness");
  }
  if (record.status == Status::ok && !record.reason.empty()) {
    row.at("reason").fail("an empty text, as the row is ok");
  }
  if (record.status == Status::ok && !record.verdict.passed()) {
    correctness.at("status").fail("passed, as the row is ok");
  }
  if (record.status == Status::ok && record.determinism &&
      record.determinism->kind == Determinism::Kind::varies) {
    row.at("determinism").at("kind").fail("bitwise or bounded, as the row is ok");
  }
  if (record.status != Status::ok && record.measurement) {
    row.at("status").fail("ok, as the row has times");
  }
  if (record.verdict.passed()) {
    require_passed_tensors(record.verdict, record.item.problem.pass, correctness);
  }
}

void require_rows_of_sweep(const StrictJson& meta, const std::vector<Record>& records) {
  if (!meta.contains("sweep")) return;
  const StrictJson sweep = meta.at("sweep");
  const std::vector<std::string> providers = sweep.at("providers");
  const OwnRows rows = own_rows(records);
  for (const std::string& key : rows.keys) {
    for (const std::string& provider : providers) {
      if (rows.providers.at(key).contains(provider)) continue;
      throw std::invalid_argument(
          fmt::format("/results: expected a row of {} on {}, as /meta/sweep has it, found none",
                      provider, key));
    }
  }
  if (const int64_t cases = sweep.at("cases"); cases != std::ssize(rows.keys)) {
    throw std::invalid_argument(
        fmt::format("/results: expected the rows of {} cases, as /meta/sweep has them, found {}",
                    cases, rows.keys.size()));
  }
  if (const std::string hash = sweep.at("cases_hash"); hash != cases_hash(rows.keys)) {
    throw std::invalid_argument(
        fmt::format("/results: expected the cases of /meta/sweep, whose hash is {}, found {}", hash,
                    cases_hash(rows.keys)));
  }
}

void require_distinct(const std::vector<Record>& records) {
  std::map<std::pair<std::string, std::string>, size_t> seen;
  for (size_t i = 0; i < records.size(); ++i) {
    const auto [at, is_new] = seen.try_emplace({records[i].item.key(), records[i].provider}, i);
    if (!is_new) {
      throw std::invalid_argument(
          fmt::format("/results/{}: the same case and provider as /results/{}", i, at->second));
    }
  }
}

}  // namespace flashbench
