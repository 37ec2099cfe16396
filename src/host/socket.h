// Stream sockets between two processes on this machine. Errors are std::system_error.
#pragma once

#include <string_view>
#include <utility>

namespace flashbench {

// Creates two connected sockets, which a program that this process starts does not inherit.
std::pair<int, int> socket_pair();

// Sends all bytes, however many calls that takes. The error of a closed other side is EPIPE, and no
// signal.
void send_all(int socket, std::string_view bytes);

}  // namespace flashbench
