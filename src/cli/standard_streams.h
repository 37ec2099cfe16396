// Standard input, output and error, and the signals that writing can raise.
#pragma once

#include <string>

namespace flashbench {

// To be called first. Opens those of the three that are closed, so that no result file gets their
// number; turns SIGXFSZ and SIGPIPE into errors of the write that they come from.
void prepare_standard_streams();

// Prints to standard error, whether somebody reads it or not: what it is about matters more.
void print_error(const std::string& text);

// To be called last: writes out what is still in the buffer of standard output. Returns the exit
// code: `code`, or that of lost_output().
int flush_standard_output(int code);

// Says that standard output cannot be written, `error` being the errno, and returns the exit code.
// A reader that has closed its end of a pipe ends this program without a word, by SIGPIPE.
int lost_output(int error);

}  // namespace flashbench
