# flashbench_html_page(NAME TITLE words CAPTION words RULES file SCRIPTS a.js ...): puts an HTML page together of the frame
# and the style in src/report/html, the rules and the scripts, in the order in which the browser runs them, as
# NAME_page_text.cpp in the binary folder. That defines NAME_page_text(), which page_text.h of the calling folder declares.
# The program adds the library and the document (src/report/html/filled_page.h).
set(html_parts ${PROJECT_SOURCE_DIR}/src/report/html)

function(flashbench_html_page PAGE_NAME)
  cmake_parse_arguments(PAGE "" "TITLE;CAPTION;RULES" "SCRIPTS" ${ARGN})
  set(licence ${PROJECT_SOURCE_DIR}/third_party/vega/LICENSE)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${html_parts}/page.html ${html_parts}/page.css ${PAGE_RULES} ${PAGE_SCRIPTS} ${licence})
  file(READ ${html_parts}/page.css PAGE_STYLE)
  file(READ ${PAGE_RULES} PAGE_RULES)
  file(READ ${licence} PAGE_LIBRARY_LICENCE)
  set(scripts ${PAGE_SCRIPTS})
  set(PAGE_SCRIPTS "")
  foreach(script ${scripts})
    file(READ ${script} text)
    string(APPEND PAGE_SCRIPTS "<script>\n'use strict';\n${text}</script>\n")
  endforeach()
  configure_file(${html_parts}/page.html ${CMAKE_CURRENT_BINARY_DIR}/page.html @ONLY)
  file(READ ${CMAKE_CURRENT_BINARY_DIR}/page.html PAGE)
  file(RELATIVE_PATH PAGE_HEADER ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}/page_text.h)
  configure_file(${html_parts}/page_text.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/${PAGE_NAME}_page_text.cpp @ONLY)
endfunction()
