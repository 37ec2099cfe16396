// The page of a comparison, with places for the library and the document, embedded in the program.
#pragma once

#include <string_view>

namespace flashbench {

std::string_view comparison_page_text();

}  // namespace flashbench
