#include "worker/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace flashbench {
namespace {

class Channel : public testing::Test {
 protected:
  Channel() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  ~Channel() override {
    for (int end : ends_) close(end);
  }

  // The bytes sent for a message.
  std::string sent(std::string_view message) {
    send_message(ends_[0], message);
    std::string bytes(1000, '\0');
    const ssize_t received = recv(ends_[1], bytes.data(), bytes.size(), 0);
    bytes.resize(static_cast<size_t>(received));
    return bytes;
  }

  int ends_[2];
  MessageReader reader_;
};

TEST_F(Channel, MessagesArriveInOrderWhateverTheirSize) {
  const std::string large(3 << 20, 'x');
  std::thread sender([&] {
    send_message(ends_[0], "");
    send_message(ends_[0], large);
    send_message(ends_[0], std::string("a\0b", 3));
  });
  EXPECT_EQ(receive_message(ends_[1], reader_), "");
  EXPECT_EQ(receive_message(ends_[1], reader_), large);
  EXPECT_EQ(receive_message(ends_[1], reader_), std::string("a\0b", 3));
  sender.join();
}

TEST_F(Channel, AMessageIsPutTogetherByteByByte) {
  const std::string bytes = sent("hello");
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    reader_.append(bytes.substr(i, 1));
    EXPECT_FALSE(reader_.next());
  }
  reader_.append(bytes.substr(bytes.size() - 1));
  EXPECT_EQ(reader_.next(), "hello");
}

TEST_F(Channel, EveryDamagedByteShows) {
  const std::string bytes = sent("hello");
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i >= 4 && i < 8) continue;  // changes the length: the reader waits for more bytes
    std::string damaged = bytes;
    damaged[i] ^= 1;
    MessageReader reader;
    reader.append(damaged);
    EXPECT_THROW(reader.next(), ChannelError) << "byte " << i;
  }
}

TEST_F(Channel, AnImpossibleLengthIsRefusedBeforeItIsWaitedFor) {
  std::string bytes = sent("hello");
  bytes[7] = '\x7f';
  reader_.append(bytes);
  EXPECT_THROW(reader_.next(), ChannelError);
}

TEST_F(Channel, AClosedSocketIsTheEnd) {
  close(ends_[0]);
  EXPECT_EQ(receive_message(ends_[1], reader_), std::nullopt);
  EXPECT_THROW(send_message(ends_[1], "anybody there?"), ChannelError);
  ends_[0] = dup(ends_[1]);
}

}  // namespace
}  // namespace flashbench
