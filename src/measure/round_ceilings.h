// What bounds a forward pass whose limit is memory: a launch that moves the same rows and computes
// nothing, and a launch that does nothing. Timed in the rounds of the case, like the GEMM.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/tensors.h"
#include "measure/ceilings.h"

namespace flashbench {

// Their names.
inline constexpr std::string_view kStream = "stream", kNullLaunch = "null_launch";

// Another in these rounds, of a problem that several devices share: one device alone with the work
// of one of them.
inline constexpr std::string_view kSameWork = "same_work";

// Another, of a problem whose inputs are rounded first (`quantize`): `tiled` on the inputs as they
// are.
inline constexpr std::string_view kUnrounded = "unrounded";

// Whether memory may bound the problem: a forward pass with few FLOPs for each compulsory byte.
inline constexpr double kMostStreamedIntensity = 256;  // FLOPs a byte; an H200's ridge is near 170
bool is_streamed(const Problem&);

// `stream` reads the rows of Q, K and V that compulsory_bytes() counts, through the block table and
// for each request by itself, and writes O. `null_launch` wakes all threads, or launches an empty
// kernel. Inputs and outputs are the case's, on the device, and outlive this; O then holds no
// attention. Empty for a problem that is not streamed, on the device of another program, and for
// rows that a GPU cannot read 16 bytes at a time.
std::vector<CeilingWork> round_ceilings(Device&, const Problem&, const Inputs&, const Outputs&);

// Rows [first, first + rows) of a request, of all heads of a tensor.
struct StreamPart {
  enum Tensor : int32_t { q, k, v, o };
  Tensor tensor;
  int32_t request;
  int64_t first;
  int32_t rows;
};

// The work of `stream` in parts of about `part_bytes`, and of at most `most_rows` rows.
std::vector<StreamPart> stream_parts(const Problem&, int64_t part_bytes, int32_t most_rows);

// Bytes of these parts.
int64_t stream_bytes(const Problem&, const std::vector<StreamPart>&);

std::vector<CeilingWork> host_round_ceilings(Device&, const Problem&, const Inputs&,
                                             const Outputs&);
std::vector<CeilingWork> cuda_round_ceilings(Device&, const Problem&, const Inputs&,
                                             const Outputs&);

}  // namespace flashbench
