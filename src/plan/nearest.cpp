#include "plan/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace flashbench {

namespace {

constexpr size_t kLongestText = 64;
constexpr size_t kShortestPart = 3;  // shorter fragments are in too many names
constexpr size_t kMostNames = 3;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (the "optimal
// string alignment" distance).
size_t typing_errors(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> errors(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        errors[i][j] = i + j;
        continue;
      }
      const size_t replaced = errors[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      errors[i][j] = std::min({replaced, errors[i - 1][j] + 1, errors[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        errors[i][j] = std::min(errors[i][j], errors[i - 2][j - 2] + 1);
      }
    }
  }
  return errors[a.size()][b.size()];
}

bool is_part(std::string_view text, std::string_view name) {
  return (text.size() >= kShortestPart && name.find(text) != std::string_view::npos) ||
         (name.size() >= kShortestPart && text.starts_with(name));
}

}  // namespace

std::vector<std::string> nearest(std::string_view text, const std::vector<std::string>& known) {
  if (text.size() < 2 || text.size() > kLongestText) return {};
  const std::string wanted = lower(text);
  std::vector<std::string> parts, close;
  size_t best = std::max<size_t>(1, wanted.size() / 3);
  for (const std::string& name : known) {
    const std::string candidate = lower(name);
    if (is_part(wanted, candidate)) parts.push_back(name);
    const size_t distance = typing_errors(wanted, candidate);
    if (distance < best) close.clear();
    if (distance <= best) {
      best = distance;
      close.push_back(name);
    }
  }
  // One typing error says more than a shared fragment does.
  std::vector<std::string>& names = parts.empty() || (!close.empty() && best <= 1) ? close : parts;
  if (names.size() > kMostNames) names.resize(kMostNames);
  return names;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& known) {
  const std::vector<std::string> names = nearest(text, known);
  if (names.empty()) return "";
  return fmt::format("; did you mean \"{}\"?", fmt::join(names, "\" or \""));
}

}  // namespace flashbench
