#include "plan/block_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/error.h"
#include "files/npy.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kNone = BlockTable::kNoPage;

BlockTable read(const Json& json) {
  return read_block_table(StrictJson(json));
}

std::string error_of(const Json& json) {
  try {
    read(json);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(BlockTableAxis, ReadsTheRowsOfRequests) {
  const BlockTable table = read({{"pages", 5}, {"table", "3,1__0"}});
  EXPECT_EQ(table.pages(), 5);
  EXPECT_EQ(table.requests(), 3);
  EXPECT_EQ(table.width(), 3);  // one behind the longest row
  const std::vector<int32_t> expected{3, 1, kNone, kNone, kNone, kNone, 0, kNone, kNone};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(table.data()[i], expected[i]);
  EXPECT_EQ(read({{"table", ""}}).requests(), 1);
  EXPECT_EQ(read({{"table", ""}}).pages(), 0);
}

TEST(BlockTableAxis, IsReadBack) {
  for (const char* text : {"3,1_0,4,2", "", "_", "-1,7_2147480001", "0_0_0"}) {
    const BlockTable table = read({{"pages", 8}, {"table", text}});
    EXPECT_EQ(block_table_json(table), (Json{{"pages", 8}, {"table", text}}));
    EXPECT_EQ(block_table_argument(table), "8:" + std::string(text));
    EXPECT_EQ(block_table_of_option(block_table_argument(table)), block_table_json(table));
  }
}

TEST(BlockTableAxis, TakesFilesAndJsonAsOptions) {
  EXPECT_EQ(block_table_of_option("table.npy"), (Json{{"file", "table.npy"}}));
  EXPECT_EQ(block_table_of_option("5table.npy"), (Json{{"file", "5table.npy"}}));
  EXPECT_EQ(block_table_of_option(R"({"pages": 3, "file": "t.npy"})"),
            (Json{{"pages", 3}, {"file", "t.npy"}}));
  EXPECT_THROW(block_table_of_option("{"), std::invalid_argument);
}

TEST(BlockTableAxis, SaysWhatIsWrong) {
  EXPECT_EQ(error_of({{"pages", 5}}), "expected exactly one of the keys table, file, found none");
  EXPECT_EQ(error_of({{"table", "0"}, {"file", "t.npy"}}),
            "expected exactly one of the keys table, file, found both");
  EXPECT_EQ(error_of({{"table", "0"}, {"page", 3}}), "/page: expected pages, table or file");
  EXPECT_EQ(error_of({{"table", "0,1_2,x"}}),
            "/table: request 1, page 1: expected a number, as in 3,1_0,4,2, found \"x\"");
  EXPECT_EQ(error_of({{"table", "0,,1"}}),
            "/table: request 0, page 1: expected a number, as in 3,1_0,4,2, found \"\"");
  EXPECT_EQ(error_of({{"table", "0,99999999999"}}),
            "/table: request 0, page 1: expected a number, as in 3,1_0,4,2, found \"99999999999\"");
  EXPECT_EQ(error_of({{"pages", -1}, {"table", "0"}}),
            "/pages: expected an integer from 0 to 2147480000, found -1");
  EXPECT_EQ(error_of({{"table", std::string(70'000, '_')}}),
            "expected a table of 1 to 65536 entries, found 70001 x 1");
}

class BlockTableFile : public testing::Test {
 protected:
  std::string write(NpyArray::Type type, const std::vector<int64_t>& shape, const void* data) {
    write_npy(path_, type, shape, data);
    return path_;
  }
  TemporaryFolder folder_;
  std::string path_ = (folder_.path() / "table.npy").string();
};

TEST_F(BlockTableFile, IsInt32OfTwoDimensions) {
  const std::vector<int32_t> entries{3, 1, kNone, 0, -1, kNone};
  write(NpyArray::Type::int32, {{2, 3}}, entries.data());
  const BlockTable table = read({{"pages", 5}, {"file", path_}});
  EXPECT_EQ(block_table_json(table), (Json{{"pages", 5}, {"table", "3,1_0,-1"}}));
  EXPECT_EQ(table.width(), 3);
}

TEST_F(BlockTableFile, OfAnotherTypeOrShapeIsRefused) {
  const std::vector<float> floats(6);
  write(NpyArray::Type::float32, {{2, 3}}, floats.data());
  EXPECT_EQ(error_of({{"file", path_}}),
            path_ +
                ": expected int32 of two dimensions, requests and their pages, found float32 "
                "of shape (2, 3)");
  const std::vector<int32_t> entries(6);
  write(NpyArray::Type::int32, {{6}}, entries.data());
  EXPECT_EQ(error_of({{"file", path_}}),
            path_ +
                ": expected int32 of two dimensions, requests and their pages, found int32 "
                "of shape (6)");
  write(NpyArray::Type::int32, {{0, 3}}, entries.data());
  EXPECT_EQ(error_of({{"file", path_}}), "expected a table of 1 to 65536 entries, found 0 x 1");
  EXPECT_THROW(read({{"file", path_ + ".missing"}}), FileError);
}

}  // namespace
}  // namespace flashbench
