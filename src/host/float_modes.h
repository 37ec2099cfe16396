// How this thread computes with floating-point numbers: the direction of rounding, whether numbers
// below the normal ones are flushed to zero, and which exceptions are signals.
#pragma once

#include <cstdint>

#ifndef __x86_64__
#include <cfenv>
#endif

namespace flashbench {

// Puts the modes back at its end, if code of others has changed them. Cheap enough for what is
// timed: on x86-64, <cfenv> takes 130 ns for both, and this 10.
class KeptFloatModes {
 public:
  KeptFloatModes();
  ~KeptFloatModes();
  KeptFloatModes(const KeptFloatModes&) = delete;
  KeptFloatModes& operator=(const KeptFloatModes&) = delete;

 private:
#ifdef __x86_64__
  uint32_t sse_;
  uint16_t x87_;
#else
  std::fenv_t all_;
#endif
};

}  // namespace flashbench
