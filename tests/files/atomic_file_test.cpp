#include "files/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include "attention/error.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

class AtomicFile : public testing::Test {
 protected:
  static std::string text(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  static mode_t mode(const fs::path& path) {
    struct stat found {};
    EXPECT_EQ(::stat(path.c_str(), &found), 0);
    return found.st_mode & 07777;
  }

  int64_t files() const { return std::distance(fs::directory_iterator(folder_.path()), {}); }

  // Expects that require_writable predicts the failure, and that it happens.
  static void expect_refused(const fs::path& path, const std::string& why) {
    EXPECT_THAT([&] { require_writable(path); },
                ThrowsMessage<FileError>(HasSubstr(path.string() + ": cannot write: " + why)));
    EXPECT_THAT([&] { write_file_atomically(path, "x"); },
                ThrowsMessage<FileError>(HasSubstr(path.string() + ": cannot write: " + why)));
  }

  TemporaryFolder folder_;
};

TEST_F(AtomicFile, ReplacesAndLeavesNoTemporary) {
  write_file_atomically(folder_ / "result", "old");
  write_file_atomically(folder_ / "result", "new");
  EXPECT_EQ(text(folder_ / "result"), "new");
  EXPECT_EQ(files(), 1);
}

// A process of another container may have the same number.
TEST_F(AtomicFile, LeavesTemporaryFilesOfOthers) {
  const fs::path other = folder_ / fmt::format(".flashbench.{}.tmp", ::getpid());
  std::ofstream(other) << "theirs";
  write_file_atomically(folder_ / "result", "ours");
  EXPECT_EQ(text(folder_ / "result"), "ours");
  EXPECT_EQ(text(other), "theirs");
}

TEST_F(AtomicFile, KeepsTheMode) {
  for (const mode_t kept : {0600, 0664, 0200, 0755}) {
    write_file_atomically(folder_ / "result", "old");
    ASSERT_EQ(::chmod((folder_ / "result").c_str(), kept), 0);
    write_file_atomically(folder_ / "result", "new");
    EXPECT_EQ(mode(folder_ / "result"), kept);
  }
}

TEST_F(AtomicFile, MakesANewFileAsTheMaskSays) {
  const mode_t mask = ::umask(027);
  write_file_atomically(folder_ / "result", "new");
  ::umask(mask);
  EXPECT_EQ(mode(folder_ / "result"), 0640u);
}

TEST_F(AtomicFile, RefusesAReadOnlyFileEvenToRoot) {
  write_file_atomically(folder_ / "result", "old");
  ::chmod((folder_ / "result").c_str(), 0444);
  expect_refused(folder_ / "result", "Permission denied");
  EXPECT_EQ(text(folder_ / "result"), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFile, RefusesWhatCannotBeAFile) {
  fs::create_directory(folder_ / "folder");
  std::ofstream(folder_ / "file") << "text";
  expect_refused(folder_ / "folder", "Is a directory");
  expect_refused(folder_ / "missing" / "result", "No such file or directory");
  expect_refused(folder_ / "file" / "result", "Not a directory");
}

TEST_F(AtomicFile, FollowsLinks) {
  fs::create_directory(folder_ / "there");
  fs::create_symlink("there/result", folder_ / "first");
  fs::create_symlink(folder_ / "first", folder_ / "second");
  for (const char* content : {"new", "newer"}) {  // the target is created, then replaced
    require_writable(folder_ / "second");
    write_file_atomically(folder_ / "second", content);
    EXPECT_EQ(text(folder_ / "there" / "result"), content);
    EXPECT_TRUE(fs::is_symlink(folder_ / "first"));
    EXPECT_TRUE(fs::is_symlink(folder_ / "second"));
  }
  fs::create_symlink("circle", folder_ / "circle");
  expect_refused(folder_ / "circle", "Too many levels of symbolic links");
}

TEST_F(AtomicFile, WritesToADeviceAndLeavesIt) {
  fs::create_symlink("/dev/full", folder_ / "full");
  for (const fs::path& path : {fs::path("/dev/full"), folder_ / "full"}) {
    require_writable(path);
    EXPECT_THAT([&] { write_file_atomically(path, "x"); },
                ThrowsMessage<FileError>(
                    HasSubstr(path.string() + ": cannot write: No space left on device")));
    EXPECT_TRUE(fs::is_character_file(path));
  }
  write_file_atomically("/dev/null", "x");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(AtomicFile, WritesToAPipeAndLeavesIt) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = text(pipe); });
  write_file_atomically(pipe, "content");
  reader.join();
  EXPECT_EQ(received, "content");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(AtomicFile, WritesToAnOpenFileByItsNumber) {
  const int fd = ::open((folder_ / "open").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "before ", 7), 7);
  write_file_atomically("/proc/self/fd/" + std::to_string(fd), "content ");
  ASSERT_EQ(::write(fd, "after", 5), 5);  // still the same file
  ::close(fd);
  EXPECT_EQ(text(folder_ / "open"), "before content after");
}

}  // namespace
}  // namespace flashbench
