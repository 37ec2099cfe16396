#include "files/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/error.h"

namespace flashbench {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::string bytes_of(std::initializer_list<unsigned char> bytes) {
  return {bytes.begin(), bytes.end()};
}

// What `printf hello | gzip --no-name` writes.
const std::string kHello =
    bytes_of({0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0xcb, 0x48, 0xcd,
              0xc9, 0xc9, 0x07, 0x00, 0x86, 0xa6, 0x10, 0x36, 0x05, 0x00, 0x00, 0x00});

TEST(Gzip, IsKnownByItsFirstBytes) {
  EXPECT_TRUE(is_gzip(kHello));
  EXPECT_FALSE(is_gzip(""));
  EXPECT_FALSE(is_gzip("\x1f"));
  EXPECT_FALSE(is_gzip("{}"));
}

TEST(Gzip, HasTheContentOfAllMembers) {
  EXPECT_EQ(gunzip(kHello, 5, "a.gz"), "hello");
  EXPECT_EQ(gunzip(kHello + kHello, 10, "a.gz"), "hellohello");
}

TEST(Gzip, RefusesMoreThanTheLimit) {
  EXPECT_THAT([] { gunzip(kHello, 4, "a.gz"); },
              ThrowsMessage<FileError>("a.gz: cannot decompress: larger than 4 bytes"));
  EXPECT_THAT([] { gunzip(kHello + kHello, 9, "a.gz"); },
              ThrowsMessage<FileError>("a.gz: cannot decompress: larger than 9 bytes"));
}

TEST(Gzip, RefusesAFileThatIsCutOffAnywhere) {
  for (size_t size = 0; size < kHello.size(); ++size) {
    EXPECT_THAT([&] { gunzip(kHello.substr(0, size), 100, "a.gz"); },
                ThrowsMessage<FileError>("a.gz: cannot decompress: the file is cut off"))
        << size;
  }
}

TEST(Gzip, RefusesEveryOtherBitInContentAndChecksum) {
  for (size_t byte = 10; byte < kHello.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = kHello;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      // The padding behind the last block's end means nothing.
      if (byte == 16 && bit >= 2) continue;
      EXPECT_THROW(gunzip(damaged, 100, "a.gz"), FileError) << byte << " " << bit;
    }
  }
}

TEST(Gzip, RefusesOtherBytesBehindTheEnd) {
  EXPECT_THAT([] { gunzip(kHello + "more", 100, "a.gz"); },
              ThrowsMessage<FileError>(HasSubstr("a.gz: cannot decompress: incorrect header")));
}

}  // namespace
}  // namespace flashbench
