// Messages between a sweep and its worker over a socket: each is a header (magic, length, checksum)
// and a text. Whatever else arrives is malformed, and shows.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace flashbench {

// What arrived is no message, or the other side is gone.
class ChannelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Puts messages together from the pieces in which they arrive.
class MessageReader {
 public:
  void append(std::string_view bytes) { pending_ += bytes; }

  // The next whole message, if it is there. Throws ChannelError.
  std::optional<std::string> next();

 private:
  std::string pending_;
};

// Writes a message to a socket. Throws ChannelError if nobody reads any more.
void send_message(int socket, std::string_view message);

// Waits for a message; empty if the other side has closed. Throws ChannelError.
std::optional<std::string> receive_message(int socket, MessageReader& reader);

inline constexpr size_t kMaxMessageBytes = size_t{1} << 30;

}  // namespace flashbench
