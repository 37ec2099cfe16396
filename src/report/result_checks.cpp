#include "report/result_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

namespace flashbench {

namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr double kMaxLength = 0x1p30;
constexpr double kMaxRows = 0x1p44;  // batch * heads * length

}  // namespace

int64_t byte_count(const StrictJson& json) {
  const int64_t bytes = json;
  if (bytes < 0 || bytes > kMaxBytes) json.fail("a number of bytes");
  return bytes;
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
  static_cast<void>(shard_part(json.at("meta").json()));
  const std::vector<StrictJson> devices = json.at("devices").elements();
  if (devices.empty()) json.at("devices").fail("at least one device");
  for (const StrictJson& device : devices) {
    text_if_there(device, "name");
    text_if_there(device, "instructions");
    if (device.contains("threads")) static_cast<void>(int{device.at("threads")});
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
