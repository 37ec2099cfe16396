// The page without results, embedded in the program.
#pragma once

#include <string_view>

namespace flashbench {

std::string_view page_text();

}  // namespace flashbench
