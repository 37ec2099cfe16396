// How the inputs of a problem are rounded to bytes (Problem::quantize).
#pragma once

#include <cstdint>

#include "attention/problem.h"

namespace flashbench {

// The parts of a recipe, in the order in which they are done.
struct Recipe {
  Descale descale = Descale::per_head;  // what has a factor of its own, in Q, K and V
  bool smooth_k = false;  // K less its mean over the keys, which moves a row's scores alike
  bool hadamard = false;  // Q and K with random signs, then times a Hadamard matrix
  bool int8_qk = false;   // Q and K as int8, V as e4m3; else all three as e4m3
};

// Throws std::logic_error for Quantize::none.
Recipe recipe_of(Quantize);

// Whether there is a Hadamard matrix of this size here: 2^k or 12 * 2^k.
bool has_hadamard(int64_t size);

}  // namespace flashbench
