#include "worker/channel.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "files/checksum.h"
#include "host/socket.h"

namespace flashbench {

namespace {

// Both ends are the same program on the same machine, so that byte order does not matter.
struct Header {
  uint32_t magic = 0;
  uint32_t length = 0;
  uint64_t number = 0;
  uint64_t sum = 0;  // of number and text
};
constexpr uint32_t kMagic = 0x32574246;  // "FBW2"

uint64_t sum_of(uint64_t number, std::string_view text) {
  return checksum(text.data(), text.size(), number);
}

}  // namespace

std::optional<Message> MessageReader::next() {
  Header header;
  if (pending_.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, pending_.data(), sizeof(header));
  if (header.magic != kMagic || header.length > kMaxMessageBytes) {
    throw ChannelError("the bytes that arrived do not start a message");
  }
  if (pending_.size() < sizeof(header) + header.length) return std::nullopt;
  Message message{header.number, pending_.substr(sizeof(header), header.length)};
  if (sum_of(message.number, message.text) != header.sum) {
    throw ChannelError("a message arrived with a wrong checksum");
  }
  pending_.erase(0, sizeof(header) + header.length);
  return message;
}

void send_message(int socket, uint64_t number, std::string_view text) {
  if (text.size() > kMaxMessageBytes) throw ChannelError("the message is too long to send");
  const Header header{kMagic, static_cast<uint32_t>(text.size()), number, sum_of(number, text)};
  try {
    send_all(socket, {reinterpret_cast<const char*>(&header), sizeof(header)});
    send_all(socket, text);
  } catch (const std::system_error& error) {
    throw ChannelError(error.what());
  }
}

std::optional<Message> receive_message(int socket, MessageReader& reader) {
  std::array<char, 1 << 16> bytes;
  while (true) {
    if (auto message = reader.next()) return message;
    const ssize_t received = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (received == 0) return std::nullopt;
    if (received < 0 && errno == EINTR) continue;
    if (received < 0) throw ChannelError(fmt::format("cannot receive: {}", std::strerror(errno)));
    reader.append({bytes.data(), static_cast<size_t>(received)});
  }
}

}  // namespace flashbench
