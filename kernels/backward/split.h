// Chooses how many thread blocks of the backward pass's main kernel share a block of keys, and the
// order of heads.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/attention.h"
#include "kernels/common/sections.cuh"

namespace flashbench::kernels::backward {

// Calls visit with the blocks of queries that see any key of a block, for each block of keys that
// may be seen. All requests have as many queries and keys.
void for_each_key_block(const Problem&, const BlockSizes&,
                        const std::function<void(const RowRange& query_blocks)>& visit);

// The work of a block of keys is all pairs of a query head of its group and a block of queries that
// sees it. choose_parts divides it into even parts, one thread block each, and into two at least if
// dK and dV are to be fp32, as shared sums are. The cuts are the same for all keys.
int choose_parts(const Launch&);

// How many thread blocks of the main kernel, or clusters of them, run at once.
int64_t slots(const Launch&);

// Whether the blocks of keys of the last wave may be split (last_wave.h). Pieces add their dQ in no
// order, and no two launches or parts may add to their dK and dV.
bool may_split_last_wave(const Launch&, int parts, bool deterministic);

// The sections of the parts of K/V heads, for thread blocks that go backwards or not (work.cuh).
Sections sections(const Launch&, int64_t parts, bool backwards);

// Whether thread blocks that go backwards can rotate (work.cuh): they all run at once, so that each
// may wait for any other, see all queries, and have no more blocks of keys than of queries. Two
// such launches must not share a GPU: each could wait for room that the other has.
bool rotates(const Launch&, int64_t parts);

}  // namespace flashbench::kernels::backward
