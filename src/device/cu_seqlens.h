// Where the requests of a batch begin, in the form in which FlashAttention's varlen functions take
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attention/problem.h"
#include "device/device.h"

namespace flashbench {

// In device memory: how many queries, or keys, the requests before request b have, [batch + 1]. An
// input like Q, but in no placement. Null for a problem of equal lengths.
class CuSeqlens {
 public:
  CuSeqlens(Device&, const Problem&);

  const int32_t* queries() const { return queries_.as<const int32_t>(); }
  const int32_t* keys() const { return keys_.as<const int32_t>(); }

  // A sentence about a problem with more tokens than 32 bits can count; empty for others.
  static std::optional<std::string> why_none(const Problem&);

 private:
  Buffer queries_, keys_;
};

}  // namespace flashbench
