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
  uint64_t sum = 0;
};
constexpr uint32_t kMagic = 0x31574246;  // "FBW1"

}  // namespace

std::optional<std::string> MessageReader::next() {
  Header header;
  if (pending_.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, pending_.data(), sizeof(header));
  if (header.magic != kMagic || header.length > kMaxMessageBytes) {
    throw ChannelError("the bytes that arrived do not start a message");
  }
  if (pending_.size() < sizeof(header) + header.length) return std::nullopt;
  std::string message = pending_.substr(sizeof(header), header.length);
  if (checksum(message.data(), message.size()) != header.sum) {
    throw ChannelError("a message arrived with a wrong checksum");
  }
  pending_.erase(0, sizeof(header) + header.length);
  return message;
}

void send_message(int socket, std::string_view message) {
  if (message.size() > kMaxMessageBytes) throw ChannelError("the message is too long to send");
  const Header header{kMagic, static_cast<uint32_t>(message.size()),
                      checksum(message.data(), message.size())};
  try {
    send_all(socket, {reinterpret_cast<const char*>(&header), sizeof(header)});
    send_all(socket, message);
  } catch (const std::system_error& error) {
    throw ChannelError(error.what());
  }
}

std::optional<std::string> receive_message(int socket, MessageReader& reader) {
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
