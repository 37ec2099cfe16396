// Text as one word of a command for a shell.
#pragma once

#include <string>
#include <string_view>

namespace flashbench {

// As it is where a POSIX shell takes it as it is; else in single quotes.
std::string shell_word(std::string_view text);

}  // namespace flashbench
