// Where cuDNN is searched for, and the errors; the libraries are fakes.
#include "device/cudnn_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "attention/error.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class CudnnLibrarySearch : public testing::Test {
 protected:
  // Creates libcudnn.so.9 in this folder below ours: a copy of the fake, or text.
  fs::path put(const fs::path& below, const char* fake = FAKE_CUDNN) const {
    fs::create_directories(folder_ / below);
    fs::path file = folder_ / below / "libcudnn.so.9";
    fs::copy_file(fake, file);
    return file;
  }
  fs::path put_text(const fs::path& below) const {
    fs::create_directories(folder_ / below);
    fs::path file = folder_ / below / "libcudnn.so.9";
    std::ofstream(file) << "not a library";
    return file;
  }

  static FoundLibrary open_given(const fs::path& given) {
    return open_cudnn(cudnn_candidates({.given = given, .environments = {}, .toolkit = ""}));
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(CudnnLibrarySearch, GoesFromPythonEnvironmentsToTheLoaderToTheToolkit) {
  const fs::path toolkit = put("toolkit");
  const fs::path first = put("first/lib/python3.12/site-packages/nvidia/cudnn/lib");
  const fs::path second = put("second/lib/python3.9/site-packages/nvidia/cudnn/lib");
  const LibraryPlaces places{.given = "",
                             .environments = {folder_ / "first", folder_ / "second"},
                             .toolkit = folder_ / "toolkit"};
  EXPECT_THAT(cudnn_candidates(places), ElementsAre(first, second, "libcudnn.so.9", toolkit));
}

TEST_F(CudnnLibrarySearch, LeavesOutPlacesThatHaveNone) {
  fs::create_directories(folder_ / "environment/lib/python3.12/site-packages");
  const LibraryPlaces places{.given = "",
                             .environments = {folder_ / "environment", folder_ / "nowhere"},
                             .toolkit = folder_ / "toolkit"};
  EXPECT_THAT(cudnn_candidates(places), ElementsAre("libcudnn.so.9"));
  EXPECT_THAT(cudnn_candidates({}), ElementsAre("libcudnn.so.9"));
}

TEST_F(CudnnLibrarySearch, TakesWhatIsGivenAndNothingElse) {
  const fs::path file = put("given");
  put("toolkit");
  for (const fs::path& given : {file, folder_ / "given"}) {
    const LibraryPlaces places{
        .given = given, .environments = {folder_}, .toolkit = folder_ / "toolkit"};
    EXPECT_THAT(cudnn_candidates(places), ElementsAre(file));
  }
}

TEST_F(CudnnLibrarySearch, OpensALibraryOrItsFolder) {
  const fs::path file = put("given");
  for (const fs::path& given : {file, folder_ / "given"}) {
    const FoundLibrary library = open_given(given);
    EXPECT_NE(library.handle, nullptr);
    EXPECT_EQ(library.version, "9.19.2");
    EXPECT_EQ(library.path, file);
    EXPECT_EQ(library.error, "");
  }
}

TEST_F(CudnnLibrarySearch, SaysWhatIsWrongWithWhatIsGiven) {
  const auto error = [](const fs::path& given) {
    const FoundLibrary library = open_given(given);
    EXPECT_EQ(library.handle, nullptr);
    return library.error;
  };
  EXPECT_THAT(error(folder_ / "nowhere"),
              testing::AllOf(HasSubstr((folder_ / "nowhere").string()), HasSubstr("No such file")));
  EXPECT_THAT(error(folder_), HasSubstr((folder_ / "libcudnn.so.9").string() + ": cannot open"));
  EXPECT_THAT(error(put_text("text")), HasSubstr("text/libcudnn.so.9: "));
  EXPECT_THAT(error(put("old", FAKE_OLD_CUDNN)),
              HasSubstr("old/libcudnn.so.9: it is cuDNN 8.9.7; 9.0.0 or later is needed"));
  EXPECT_THAT(error("libm.so.6"), HasSubstr(fs::absolute("libm.so.6").string()))
      << "a bare name is a file of this folder";
  EXPECT_THAT(error(put("other", FAKE_OTHER_LIBRARY)),
              HasSubstr("other/libcudnn.so.9: it has no cudnnGetVersion"));
}

TEST_F(CudnnLibrarySearch, GoesOnPastALibraryThatIsNoUse) {
  const fs::path old = put("old", FAKE_OLD_CUDNN), text = put_text("text"), good = put("good");
  EXPECT_EQ(open_cudnn({old, text, good}).version, "9.19.2");
  EXPECT_THAT(open_cudnn({old, text}).error,
              testing::AllOf(HasSubstr("it is cuDNN 8.9.7"), HasSubstr("; " + text.string())));
}

TEST(CudnnPlacesOfThisProcess, AreInItsEnvironment) {
  setenv("FLASHBENCH_CUDNN", "/given", 1);
  setenv("VIRTUAL_ENV", "/venv", 1);
  setenv("CONDA_PREFIX", "", 1);
  const LibraryPlaces places = cudnn_places();
  EXPECT_EQ(places.given, "/given");
  EXPECT_THAT(places.environments, ElementsAre("/venv"));
  for (const char* variable : {"FLASHBENCH_CUDNN", "VIRTUAL_ENV", "CONDA_PREFIX"}) {
    unsetenv(variable);
  }
}

}  // namespace
}  // namespace flashbench
