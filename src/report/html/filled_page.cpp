#include "report/html/filled_page.h"

#include <stdexcept>

#include "report/html/page_text.h"

namespace flashbench {

namespace {

void fill(std::string& page, std::string_view place, std::string_view text) {
  const size_t at = page.find(place);
  if (at == std::string::npos)
    throw std::logic_error("the embedded page has no place for its data");
  page.replace(at, place.size(), text);
}

// JSON that may stand in a <script>: no "</script>" and no "<!--" can come from a file's text.
std::string script_json(const nlohmann::ordered_json& json) {
  using ErrorHandler = nlohmann::ordered_json::error_handler_t;
  std::string text;
  for (char c : json.dump(-1, ' ', true, ErrorHandler::replace)) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string filled_page(std::string_view page, const nlohmann::ordered_json& document) {
  std::string filled(page);
  fill(filled, "{{LIBRARY}}", library_text());  // before there are texts of files
  fill(filled, "{{DOCUMENT}}", script_json(document));
  return filled;
}

}  // namespace flashbench
