#include "compare/html/page.h"

#include "compare/html/document.h"
#include "compare/html/page_text.h"
#include "report/html/filled_page.h"

namespace flashbench {

std::string to_html(const Comparison& comparison, const NamedResult& base, const NamedResult& now) {
  return filled_page(comparison_page_text(), html_document(comparison, base, now));
}

}  // namespace flashbench
