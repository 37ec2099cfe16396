// The result as GitHub-flavoured Markdown.
#pragma once

#include <string>

#include "report/record.h"

namespace flashbench {

std::string to_markdown(const SweepResult&);

}  // namespace flashbench
