#include "host/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>
#include <thread>

namespace flashbench {
namespace {

TEST(Socket, ProgramsDoNotInheritThePair) {
  const auto [a, b] = socket_pair();
  EXPECT_NE(fcntl(a, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(fcntl(b, F_GETFD) & FD_CLOEXEC, 0);
  close(a);
  close(b);
}

TEST(Socket, SendsMoreThanTheKernelBuffers) {
  const auto [a, b] = socket_pair();
  std::string text(8 << 20, 'x');
  text.front() = 'a';
  text.back() = 'z';
  std::thread sender([&, end = a] {
    send_all(end, text);
    close(end);
  });
  std::string received;
  std::array<char, 1 << 16> bytes;
  for (ssize_t count; (count = recv(b, bytes.data(), bytes.size(), 0)) > 0;) {
    received.append(bytes.data(), static_cast<size_t>(count));
  }
  sender.join();
  close(b);
  EXPECT_EQ(received, text);
}

TEST(Socket, AClosedOtherSideIsAnError) {
  const auto [a, b] = socket_pair();
  close(b);
  try {
    send_all(a, "text");
    FAIL() << "it was sent";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EPIPE);
    EXPECT_NE(std::string(error.what()).find("cannot send: "), std::string::npos);
  }
  close(a);
}

}  // namespace
}  // namespace flashbench
