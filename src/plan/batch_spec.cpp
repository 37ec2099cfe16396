#include "plan/batch_spec.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "plan/lengths.h"

namespace flashbench {

namespace {

class BatchSpecParser {
 public:
  explicit BatchSpecParser(std::string_view text) : text_(text) {}

  std::vector<RequestLengths> parse() {
    std::vector<RequestLengths> requests;
    do {
      const int64_t count = number_if_any(kMostRequests).value_or(1);
      if (!accept('q')) fail(at_ == 0 ? "a number of requests or q" : "q and a number of queries");
      const int64_t q_len = length();
      const int64_t kv_len = accept('s') ? length() : q_len;
      if (count > kMostRequests - static_cast<int64_t>(requests.size())) {
        fail(fmt::format("at most {} requests", kMostRequests));
      }
      requests.insert(requests.end(), static_cast<size_t>(count), {q_len, kv_len});
    } while (accept('_'));
    if (at_ < text_.size()) fail("_ or the end");
    return requests;
  }

 private:
  bool accept(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<int64_t> number_if_any(int64_t most) {
    if (at_ == text_.size() || std::isdigit(static_cast<unsigned char>(text_[at_])) == 0) {
      return std::nullopt;
    }
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value > most) fail(fmt::format("a number up to {}", most));
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  int64_t length() {
    const std::optional<int64_t> value = number_if_any(kLongestRequest);
    if (!value) fail("a length");
    const int64_t length = accept('k') ? *value * 1024 : *value;
    if (length > kLongestRequest) fail(fmt::format("a length up to {}", kLongestRequest));
    return length;
  }

  [[noreturn]] void fail(const std::string& expected) const {
    throw std::invalid_argument(
        fmt::format("expected {} at character {}, found {}", expected, at_ + 1,
                    at_ == text_.size() ? std::string("the end")
                                        : fmt::format("\"{}\"", text_.substr(at_, kMostShown))));
  }

  static constexpr size_t kMostShown = 40;

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<RequestLengths> parse_batch_spec(std::string_view text) {
  return BatchSpecParser(text).parse();
}

std::string batch_spec(const Lengths& lengths) {
  std::string text;
  for (int64_t b = 0; b < lengths.requests();) {
    const RequestLengths request = lengths[b];
    int64_t end = b + 1;
    while (end < lengths.requests() && lengths[end] == request) ++end;
    if (b > 0) text += '_';
    if (end - b > 1) text += fmt::to_string(end - b);
    text += fmt::format("q{}", request.q_len);
    if (request.kv_len != request.q_len) text += fmt::format("s{}", request.kv_len);
    b = end;
  }
  return text;
}

}  // namespace flashbench
