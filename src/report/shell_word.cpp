#include "report/shell_word.h"

namespace flashbench {

namespace {

// Characters that mean themselves to every shell, wherever they stand.
constexpr std::string_view kPlain =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789@%+=:,./_-";

}  // namespace

std::string shell_word(std::string_view text) {
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";  // ends the quotes, a quote alone, begins them again
    } else {
      word += c;
    }
  }
  return word + "'";
}

}  // namespace flashbench
