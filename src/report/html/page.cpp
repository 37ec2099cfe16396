#include "report/html/page.h"

#include <stdexcept>

#include "report/html/document.h"
#include "report/html/page_text.h"

namespace flashbench {

namespace {

constexpr std::string_view kDocumentGoesHere = "{{DOCUMENT}}";

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

std::string to_html(const std::vector<NamedResult>& results) {
  std::string page(page_text());
  const size_t at = page.find(kDocumentGoesHere);
  if (at == std::string::npos) throw std::logic_error("the embedded page has no place for results");
  return page.replace(at, kDocumentGoesHere.size(), script_json(html_document(results)));
}

}  // namespace flashbench
