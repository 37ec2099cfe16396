// The texts of which a page is put together, embedded in the program.
#pragma once

#include <string_view>

namespace flashbench {

// The page of a report, with places for the library and the document.
std::string_view report_page_text();

// The library that draws charts, which all pages share.
std::string_view library_text();

}  // namespace flashbench
