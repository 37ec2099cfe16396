#include "plan/plugin_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "attention/error.h"
#include "device/checksum.h"

namespace flashbench {
namespace {

std::string written(const std::string& name, const std::string& text = "some bytes") {
  // A folder of each test's own: they run side by side.
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) /
      testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder);
  const std::string path = folder / name;
  std::ofstream(path) << text;
  return path;
}

TEST(PluginFile, IsNamedAfterTheFile) {
  const std::string plain = written("kernel.so"), library = written("libkernel2.so", "others");
  const auto plugins = parse_plugins({plain, library});
  ASSERT_EQ(plugins.size(), 2u);
  EXPECT_EQ(plugins[0], (PluginFile{"plugin:kernel", plain, checksum_text("some bytes")}));
  EXPECT_EQ(plugins[1], (PluginFile{"plugin:kernel2", library, checksum_text("others")}));
}

TEST(PluginFile, CanBeGivenAName) {
  const std::string path = written("kernel.so");
  const auto plugins = parse_plugins({"old=" + path, "new-1.2_b=" + path});
  EXPECT_EQ(plugins[0].provider, "plugin:old");
  EXPECT_EQ(plugins[1].provider, "plugin:new-1.2_b");
  EXPECT_EQ(argument(plugins[1]), "new-1.2_b=" + path);
}

void expect_refused(const std::vector<std::string>& arguments, const std::string& said) {
  try {
    parse_plugins(arguments);
    FAIL() << arguments.back();
  } catch (const BadInput& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(said));
  }
}

TEST(PluginFile, RefusesWhatItCannotName) {
  const std::string path = written("kernel.so"), odd = written("two words.so");
  expect_refused({"kernel.so"}, "expected the absolute path of a shared object, got \"kernel.so\"");
  expect_refused({"name=kernel.so"}, "got \"kernel.so\"");
  expect_refused({""}, "got \"\"");
  expect_refused({odd}, "got \"two words\": NAME=");
  expect_refused({"=" + path}, "got \"\"");
  expect_refused({"..=" + path}, "got \"..\"");
  expect_refused({path, "kernel=" + path}, "are both called plugin:kernel");
  EXPECT_THROW(parse_plugins({"/nowhere/kernel.so"}), FileError);
}

}  // namespace
}  // namespace flashbench
