// Attention backward on tensor cores of sm_80 and later. backward.cpp makes the launches of
// kernels/backward/backward.h, with that of backward_main.cuh between them.
#pragma once

#include <span>

#include "kernels/backward/backward.h"
#include "kernels/common/variant.h"

namespace flashbench::kernels::sm80 {

// Of the main kernel. Each thread block owns blocks.kv keys of one K/V head.
std::span<const Variant<backward::Arguments>> main_variants(bool deterministic);
std::span<const Variant<backward::Arguments>> main_variants_by_request(bool deterministic);

}  // namespace flashbench::kernels::sm80
