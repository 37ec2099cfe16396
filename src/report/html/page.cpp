#include "report/html/page.h"

#include "report/html/document.h"
#include "report/html/filled_page.h"
#include "report/html/page_text.h"

namespace flashbench {

std::string to_html(const std::vector<NamedResult>& results) {
  return filled_page(report_page_text(), html_document(results));
}

}  // namespace flashbench
