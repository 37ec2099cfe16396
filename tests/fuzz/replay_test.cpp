// Runs every file of the corpus, seeds and kept findings, through its target, in any build.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "fuzz/targets.h"

namespace flashbench::fuzz {
namespace {

class Corpus : public testing::TestWithParam<Target> {};

INSTANTIATE_TEST_SUITE_P(All, Corpus, testing::ValuesIn(kTargets),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST_P(Corpus, HasNoFinding) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(FUZZ_CORPUS) / GetParam().name)) {
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    EXPECT_NO_THROW(GetParam().run(bytes.view())) << entry.path();
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST_P(Corpus, NothingAtAllIsNoFinding) {
  EXPECT_NO_THROW(GetParam().run({}));
}

}  // namespace
}  // namespace flashbench::fuzz
