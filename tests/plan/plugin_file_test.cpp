#include "plan/plugin_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "attention/error.h"
#include "files/checksum.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

class PluginFiles : public testing::Test {
 protected:
  std::string written(const std::string& name, const std::string& text = "some bytes") const {
    const std::string path = folder_ / name;
    std::ofstream(path) << text;
    return path;
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(PluginFiles, AreNamedAfterTheFile) {
  const std::string plain = written("kernel.so"), library = written("libkernel2.so", "others");
  const auto plugins = parse_plugins({plain, library});
  ASSERT_EQ(plugins.size(), 2u);
  EXPECT_EQ(plugins[0], (PluginFile{"plugin:kernel", plain, checksum_text("some bytes")}));
  EXPECT_EQ(plugins[1], (PluginFile{"plugin:kernel2", library, checksum_text("others")}));
}

TEST_F(PluginFiles, CanBeGivenAName) {
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

TEST_F(PluginFiles, AreRefusedWithoutAName) {
  const std::string path = written("kernel.so"), odd = written("two words.so");
  expect_refused({"kernel.so"},
                 "expected the absolute path of a shared object, got \"kernel.so\"; \"" +
                     std::filesystem::absolute("kernel.so").string() + "\" would be one");
  expect_refused({"name=kernel.so"}, "got \"kernel.so\"");
  expect_refused({""}, "got \"\"");
  expect_refused({odd}, "got \"two words\"; NAME=");
  expect_refused({"=" + path}, "got \"\"");
  expect_refused({"..=" + path}, "got \"..\"");
  expect_refused({path, "kernel=" + path}, "are both called plugin:kernel");
  EXPECT_THROW(parse_plugins({"/nowhere/kernel.so"}), FileError);
}

}  // namespace
}  // namespace flashbench
