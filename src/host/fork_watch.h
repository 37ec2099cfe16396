// Children that code of others forks in this process. One that does not end itself, as after an
// exec that fails, would return into the tool and do its work a second time.
#pragma once

namespace flashbench {

// Watches from now on. Called before any of the others.
void watch_forks();

// Whether this process is such a child.
bool is_forked_child();

// Ends a child that came back from `function`, a literal, of this owner, and tells its parent.
[[noreturn]] void end_forked_child(const void* owner, const char* function);

// The function of this owner from which a child of this process came back since the last call; null
// if none did.
const char* take_returned_child(const void* owner);

}  // namespace flashbench
