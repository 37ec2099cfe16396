// Puts the library and a document into one of the embedded pages.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace flashbench {

// `page` has one place for each: {{LIBRARY}}, {{DOCUMENT}}. Bytes of the document that are not
// UTF-8 are replaced.
std::string filled_page(std::string_view page, const nlohmann::ordered_json& document);

}  // namespace flashbench
