// Chooses how many thread blocks of the backward pass's main kernel share a block of keys, of all
// or of those of the last wave, and the order of heads.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/attention.h"
#include "kernels/common/last_wave.h"
#include "kernels/common/sections.cuh"

namespace flashbench::kernels::backward {

// What the host knows of a main kernel.
struct MainKernel {
  bool deterministic;     // each part of a block of keys has its own accumulators
  bool splits_last_wave;  // it computes blocks of keys in pieces (last_wave.h)
};

// Calls visit with the blocks of queries that see any key of a block, for each block of keys that
// may be seen. All requests have as many queries and keys.
void for_each_key_block(const Problem&, const BlockSizes&,
                        const std::function<void(const RowRange& query_blocks)>& visit);

// The work of a block of keys is all pairs of a query head of its group and a block of queries that
// sees it. choose_parts divides it into even parts, one thread block each, and into two at least if
// dK and dV are to be fp32, as shared sums are. The cuts are the same for all keys.
int choose_parts(const Launch&, const MainKernel&);

// How many thread blocks of the main kernel, or clusters of them, run at once.
int64_t slots(const Launch&);

// Whether the blocks of keys of the last wave may be split (last_wave.h): without a mask, and where
// no two launches or parts add to the same dK and dV.
bool may_split_last_wave(const Launch&, int parts, const MainKernel&);

// The blocks of keys of the last wave, if they are split here: where all requests have the same
// length. Else another kernel splits them (list_work.cuh).
LastWave split_blocks(const Launch&, int parts, const MainKernel&);

// The sections of the parts of K/V heads, for thread blocks that go backwards or not (work.cuh).
Sections sections(const Launch&, int64_t parts, bool backwards);

// Whether thread blocks that go backwards can rotate (work.cuh): they all run at once, so that each
// may wait for any other, see all queries, and have no more blocks of keys than of queries. Two
// such launches must not share a GPU: each could wait for room that the other has.
bool rotates(const Launch&, int64_t parts);

}  // namespace flashbench::kernels::backward
