// Messages between a sweep and its worker over a socket: each is a header (magic, length, number,
// checksum) and a text. Anything else is detected as malformed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace flashbench {

// The received bytes are not a message, or the other side has gone.
class ChannelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Message {
  uint64_t number = 0;  // of the request; its answer has the same
  std::string text;
};

// Assembles messages from the pieces in which they arrive.
class MessageReader {
 public:
  void append(std::string_view bytes) { pending_ += bytes; }

  // Returns the next complete message, if there is one. Throws ChannelError.
  std::optional<Message> next();

 private:
  std::string pending_;
};

// Writes a message to a socket. Throws ChannelError if the other side has closed.
void send_message(int socket, uint64_t number, std::string_view text);

// Waits for a message; empty if the other side has closed. Throws ChannelError.
std::optional<Message> receive_message(int socket, MessageReader& reader);

inline constexpr size_t kMaxMessageBytes = size_t{1} << 30;

}  // namespace flashbench
