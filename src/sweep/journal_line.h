// One line of a journal.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace flashbench {

// Returns `fields` as a line with its sequence number, checksum and line end.
std::string journal_line(int sequence, const nlohmann::ordered_json& fields);

}  // namespace flashbench
