// How the forward kernels for Hopper are launched: how many tiles there are, and the arguments.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/sm90/forward_arguments.cuh"

namespace flashbench::kernels::sm90 {

int64_t q_blocks_of(RowRange queries, int block_q);

// Blocks of queries: of a head of one request; by request, the slots of those of all requests.
int64_t q_blocks(const Problem&, int block_q);
int64_t q_block_slots(const Problem&, int block_q);

// The tiles of all heads; `q_blocks` are what q_blocks() says.
int64_t tiles(const Problem&, int64_t q_blocks);

// What all variants need but the tensor maps. The workspace begins with Arguments::last_taken.
Arguments common_arguments(const Launch&, const Outputs&, void* workspace);

// Of variants by request. Where these serve a dense problem, the caller sets q_blocks.
Arguments arguments_by_request(const Launch&, const Inputs&, const Outputs&, void* workspace);

}  // namespace flashbench::kernels::sm90
