#include "host/socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace flashbench {

std::pair<int, int> socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot create a socket");
  }
  return {ends[0], ends[1]};
}

void send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw std::system_error(errno, std::generic_category(), "cannot send");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

}  // namespace flashbench
