#include "worker/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace flashbench {
namespace {

constexpr uint64_t kNumber = 0x0102030405060708;

class Channel : public testing::Test {
 protected:
  Channel() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  ~Channel() override {
    for (int end : ends_) close(end);
  }

  // The bytes sent for a message.
  std::string sent(std::string_view message) {
    send_message(ends_[0], kNumber, message);
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
    send_message(ends_[0], 1, "");
    send_message(ends_[0], 2, large);
    send_message(ends_[0], 3, std::string("a\0b", 3));
  });
  for (const auto& [number, text] :
       {Message{1, ""}, Message{2, large}, Message{3, std::string("a\0b", 3)}}) {
    const auto message = receive_message(ends_[1], reader_);
    EXPECT_EQ(message->number, number);
    EXPECT_EQ(message->text, text);
  }
  sender.join();
}

TEST_F(Channel, AMessageIsPutTogetherByteByByte) {
  const std::string bytes = sent("hello");
  for (size_t i = 0; i + 1 < bytes.size(); ++i) {
    reader_.append(bytes.substr(i, 1));
    EXPECT_FALSE(reader_.next());
  }
  reader_.append(bytes.substr(bytes.size() - 1));
  const auto message = reader_.next();
  EXPECT_EQ(message->number, kNumber);
  EXPECT_EQ(message->text, "hello");
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
  EXPECT_FALSE(receive_message(ends_[1], reader_));
  EXPECT_THROW(send_message(ends_[1], kNumber, "anybody there?"), ChannelError);
  ends_[0] = dup(ends_[1]);
}

}  // namespace
}  // namespace flashbench
