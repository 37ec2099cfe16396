// Standard input, output and error, and the signals that writing can raise.
#pragma once

#include <string>

namespace flashbench {

// Call first. Opens those of the three that are closed, so that no result file gets their number.
// Turns SIGXFSZ and SIGPIPE into errors of the write that raises them.
void prepare_standard_streams();

// Prints to standard error, without control characters, which names of files may have; ignores
// failures, because the work matters more.
void print_error(const std::string& text);

// Call last: flushes standard output. Returns the exit code: `code`, or that of lost_output().
int flush_standard_output(int code);

// Reports that standard output cannot be written (`error` is the errno), and returns the exit code.
// If the reader has closed its end of a pipe, ends this program silently by SIGPIPE.
int lost_output(int error);

}  // namespace flashbench
