// What this process may use at most: memory, files, processor time and the like (setrlimit).
#pragma once

namespace flashbench {

// Remembers the limits of now, the first time that it is called.
void remember_limits();

// Puts back the limits that code of others has lowered since. Higher ones stay: that code may need
// them. Returns false if this process may not raise one again.
bool restore_limits();

}  // namespace flashbench
