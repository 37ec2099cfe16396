#include "plan/find_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "attention/error.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

class FindConfig : public testing::Test {
 protected:
  // Creates a folder of configs like the installed one.
  fs::path ship(const fs::path& below) const {
    fs::create_directories(folder_ / below);
    for (const char* name : {"sweep.schema.json", "quick.json", "cpu.json"}) {
      std::ofstream(folder_ / below / name) << "{}";
    }
    return folder_ / below;
  }

  TemporaryFolder folder_;
};

TEST_F(FindConfig, LooksBelowThePrefixOfAnInstallation) {
  const fs::path configs = ship("share/flashbench/configs");
  EXPECT_THAT(config_folders(folder_ / "bin/flashbench"), ElementsAre(configs));
}

TEST_F(FindConfig, LooksInTheRepositoryOfABuild) {
  const fs::path configs = ship("configs");
  EXPECT_THAT(config_folders(folder_ / "build/cpu/bin/flashbench"), ElementsAre(configs));
}

TEST_F(FindConfig, TakesNoFolderThatIsSomebodyElses) {
  fs::create_directories(folder_ / "configs");
  std::ofstream(folder_ / "configs/quick.json") << "{}";
  EXPECT_THAT(config_folders(folder_ / "build/cpu/bin/flashbench"), IsEmpty());
}

TEST_F(FindConfig, TakesANameWithAndWithoutItsEnding) {
  const fs::path configs = ship("configs");
  EXPECT_EQ(find_config("quick", {configs}), configs / "quick.json");
  EXPECT_EQ(find_config("quick.json", {configs}), configs / "quick.json");
  EXPECT_EQ(find_config("-", {configs}), "-");
}

TEST_F(FindConfig, PrefersAFile) {
  const fs::path configs = ship("configs"), own = folder_ / "quick.json";
  std::ofstream(own) << "{}";
  EXPECT_EQ(find_config(own, {configs}), own);
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  EXPECT_EQ(find_config("quick.json", {configs}), "quick.json");
  fs::create_directory("cpu");  // a folder is not a config
  EXPECT_EQ(find_config("cpu", {configs}), configs / "cpu.json");
  fs::current_path(before);
}

TEST_F(FindConfig, SaysWhereItLookedAndWhatIsThere) {
  const fs::path configs = ship("configs");
  EXPECT_THAT([&] { find_config("quik", {configs}); },
              ThrowsMessage<FileError>(AllOf(HasSubstr("no config quik"),
                                             HasSubstr("did you mean \"quick\"?"),
                                             HasSubstr(configs.string() + " are cpu, quick"))));
  EXPECT_THAT([&] { find_config("elsewhere/quick.json", {configs}); },
              ThrowsMessage<FileError>(HasSubstr("did you mean \"quick\"?")));
  EXPECT_THAT([&] { find_config("quick", {}); },
              ThrowsMessage<FileError>(HasSubstr("no configs ship beside this binary")));
  EXPECT_THAT([&] { find_config(folder_.path(), {configs}); },
              ThrowsMessage<FileError>(HasSubstr("Is a directory")));
}

}  // namespace
}  // namespace flashbench
