#include "host/float_modes.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace flashbench {

#ifdef __x86_64__

namespace {

// Of MXCSR; the other bits are exceptions that have occurred.
constexpr uint32_t kSseModes = 0xffc0;

uint16_t x87_modes() {
  uint16_t word;
  __asm__ volatile("fnstcw %0" : "=m"(word));
  return word;
}

void set_x87_modes(uint16_t word) {
  __asm__ volatile("fnclex\n\tfldcw %0" : : "m"(word));
}

}  // namespace

KeptFloatModes::KeptFloatModes() : sse_(_mm_getcsr()), x87_(x87_modes()) {}

KeptFloatModes::~KeptFloatModes() {
  if ((_mm_getcsr() & kSseModes) != (sse_ & kSseModes)) _mm_setcsr(sse_);
  if (x87_modes() != x87_) set_x87_modes(x87_);
}

#else

KeptFloatModes::KeptFloatModes() {
  std::fegetenv(&all_);
}

KeptFloatModes::~KeptFloatModes() {
  std::fesetenv(&all_);
}

#endif

}  // namespace flashbench
