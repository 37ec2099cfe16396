// A provider that misbehaves.
#pragma once

#include <memory>

#include "providers/provider.h"

namespace flashbench {

// Named "faulty". It runs the real `tiled` provider and does what $FLASHBENCH_FAULT says:
//
//   KIND[=VALUE][@TEXT]   only for problems whose id() contains TEXT, if there is one
//
//   crash          dies of SIGSEGV
//   abort          std::abort() after some last words
//   exit           ends the process with code 0
//   throw          throws
//   hang           never returns
//   deaf           never returns, with SIGTERM ignored
//   out_of_memory  asks for a pebibyte
//   huge_output    prints 64 MiB to stdout and stderr
//   nan            one NaN in the outputs
//   wrong_shape    writes them in the other layout
//   early_return   timed runs write nothing
//   stale          later runs copy the first one's outputs
//   modify_inputs  changes one element of K
//   left_running   a thread writes after run() returned
//   slow=F         each run takes F of its own time longer
//
// A crash takes the device with it if $FLASHBENCH_LOST_DEVICE names a file: `crash` makes that
// file, and a worker that finds it cannot start. Without the variable it does nothing but run
// `tiled`.
std::unique_ptr<Provider> make_faulty_provider();

}  // namespace flashbench
