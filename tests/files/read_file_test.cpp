#include "files/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "attention/error.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class ReadFile : public testing::Test {
 protected:
  static void expect_refused(const std::filesystem::path& path, const std::string& why) {
    EXPECT_THAT([&] { read_file(path, 100); },
                ThrowsMessage<FileError>(HasSubstr(path.string() + ": cannot read: " + why)));
  }

  TemporaryFolder folder_;
};

TEST_F(ReadFile, HasAllBytes) {
  const std::string bytes = std::string(300'000, 'x') + '\0' + "end";
  std::ofstream(folder_ / "file", std::ios::binary) << bytes;
  EXPECT_EQ(read_file(folder_ / "file", bytes.size()), bytes);
  std::ofstream(folder_ / "empty").flush();
  EXPECT_EQ(read_file(folder_ / "empty", 0), "");
}

TEST_F(ReadFile, SaysWhyNot) {
  std::ofstream(folder_ / "large") << std::string(101, ' ');
  expect_refused(folder_ / "missing", "No such file or directory");
  expect_refused(folder_.path(), "Is a directory");
  expect_refused(folder_ / "large", "larger than 100 bytes");
  expect_refused("/dev/zero", "larger than 100 bytes");
}

TEST_F(ReadFile, TakesAPipeThatSomebodyWritesTo) {
  const std::filesystem::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(pipe) << "content"; });
  EXPECT_EQ(read_file(pipe, 100), "content");
  writer.join();
  expect_refused(pipe, "this pipe has no writer");
}

}  // namespace
}  // namespace flashbench
