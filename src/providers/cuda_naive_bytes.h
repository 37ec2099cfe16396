// Standard attention on bytes (dtype e4m3) on a GPU: a part of the provider naive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "providers/provider.h"

namespace flashbench {

// How it sums products, and rounds P (kernels/naive/bytes.h). cuBLASLt promotes Hopper's sums to
// fp32 on the way, since fast accumulation is off; how often it does not say, and every 128 keys is
// what kernels do.
inline constexpr Accumulator kNaiveBytesAccumulator{.truncates = true, .promote_every = 128};

std::optional<std::string> why_no_naive_bytes(const Problem&, const DeviceInfo&);

// Bytes that the session allocates; scores are stored in fp32 or bf16.
int64_t naive_bytes_workspace(const Problem&, Dtype scores);

// Throws OutOfMemory, Unsupported.
std::unique_ptr<Session> make_naive_bytes_session(const Problem&, Dtype scores, Device&);

}  // namespace flashbench
