// The value of the axis `block_table`: an object that says which pages of a pool each request has.
//
//   {"pages": 5, "table": "3,1_0,4,2"}   the pages of the pool; those of a request between commas,
//                                        the requests between underscores
//   {"pages": 5, "file": "table.npy"}    int32 [requests, width], as vLLM and FlashAttention have
//   it
//
// `run` takes 5:3,1_0,4,2, or the file alone: the pool is then that of the tensors in --k and --v.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

#include "attention/block_table.h"
#include "plan/strict_json.h"

namespace flashbench {

// Few enough that the text of a table fits a result.
inline constexpr int64_t kMostTableEntries = 1 << 16;

// What is behind a row's last page is BlockTable::kNoPage; the table has at least one of them. Its
// pool has 0 pages where the object does not say. Throws std::invalid_argument, with the place in
// the object, what was expected and what was found; FileError if a file
// cannot be read.
BlockTable read_block_table(const StrictJson&);

// The object that gives this table, and its text in `run`.
nlohmann::ordered_json block_table_json(const BlockTable&);
std::string block_table_argument(const BlockTable&);

// What the config's schema says of the object.
nlohmann::ordered_json block_table_schema();

// The object that an option gives. Throws std::invalid_argument.
nlohmann::ordered_json block_table_of_option(const std::string& text);

}  // namespace flashbench
