// Where NCCL is searched for, and the errors; the libraries are fakes. The search itself is that
// of cuDNN (cudnn_library_test.cpp).
#include "device/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(NcclLibrary, IsSearchedForInPythonEnvironmentsAndThenByTheLoader) {
  const TemporaryFolder folder;
  const fs::path lib = folder.path() / "lib/python3.12/site-packages/nvidia/nccl/lib";
  fs::create_directories(lib);
  fs::copy_file(FAKE_NCCL, lib / "libnccl.so.2");
  const LibraryPlaces places{.given = "", .environments = {folder.path()}, .toolkit = ""};
  EXPECT_THAT(nccl_candidates(places), ElementsAre(lib / "libnccl.so.2", "libnccl.so.2"));
  const NcclLibrary library = open_nccl(nccl_candidates(places));
  EXPECT_EQ(library.error, "");
  EXPECT_EQ(library.version, "2.28.9");
  EXPECT_EQ(library.path, lib / "libnccl.so.2");
  EXPECT_NE(library.reduce_scatter, nullptr);
}

TEST(NcclLibrary, IsWhatTheVariableNames) {
  setenv("FLASHBENCH_NCCL", FAKE_NCCL, 1);
  EXPECT_THAT(nccl_candidates(nccl_places()), ElementsAre(FAKE_NCCL));
  unsetenv("FLASHBENCH_NCCL");
}

TEST(NcclLibrary, SaysWhatIsWrong) {
  EXPECT_THAT(open_nccl({"/nowhere/libnccl.so.2"}).error,
              AllOf(StartsWith("NCCL 2 cannot be opened: /nowhere/libnccl.so.2: "),
                    HasSubstr("No such file")));
  EXPECT_THAT(open_nccl({FAKE_OLD_NCCL}).error,
              HasSubstr("it is NCCL 2.12.10; 2.13.0 or later is needed"));
  EXPECT_THAT(open_nccl({FAKE_OLDEST_NCCL}).error, HasSubstr("it is NCCL 2.7.8"));
  EXPECT_THAT(open_nccl({FAKE_OTHER_LIBRARY}).error, HasSubstr("it has no ncclGetVersion"));
  EXPECT_THAT(open_nccl({FAKE_PART_OF_NCCL}).error, HasSubstr("it has no ncclSend"));
  EXPECT_EQ(open_nccl({FAKE_OLD_NCCL, FAKE_NCCL}).version, "2.28.9");
}

TEST(NcclLibrary, NeverUsesMulticast) {
  setenv("NCCL_NVLS_ENABLE", "1", 1);
  open_nccl({FAKE_NCCL});
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
}

}  // namespace
}  // namespace flashbench
