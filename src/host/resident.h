// The process's own view of its memory, beside what the device tracks.
#pragma once

#include <cstdint>

namespace flashbench {

// Resident bytes of this process now, and their peak since the last reset. 0 if the system does not
// report them.
int64_t resident_bytes();
int64_t peak_resident_bytes();

// Resets the peak to the present size. Has no effect if the system does not allow it.
void reset_peak_resident();

}  // namespace flashbench
