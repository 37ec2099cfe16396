// The lengths of a batch as a line of text, in the grammar of vLLM's attention benchmarks.
//
// "2q2k_32q1s1k" is 2 requests of 2048 queries and as many keys, then 32 of one query and 1024
// keys: groups [COUNT]qLENGTH[sLENGTH] between underscores, where q is the number of queries (new
// tokens), s that of keys (all tokens; without it, as many as queries) and k stands for times 1024.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attention/lengths.h"

namespace flashbench {

// Throws std::invalid_argument with the character at which it goes wrong, what was expected and
// what was found.
std::vector<RequestLengths> parse_batch_spec(std::string_view text);

// The shortest text that gives these lengths, without k.
std::string batch_spec(const Lengths&);

}  // namespace flashbench
