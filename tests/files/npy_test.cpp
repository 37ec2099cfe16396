#include "files/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "attention/error.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using std::string_literals::operator""s;
using testing::ElementsAre;
using testing::HasSubstr;

class NpyTest : public testing::Test {
 protected:
  std::filesystem::path path(const std::string& name = "array.npy") const { return folder_ / name; }

  void write_bytes(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary) << bytes;
  }
  std::string read_bytes() const {
    std::ifstream stream(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  // Writes a version 1.0 file with this header text and this many data bytes, all 0.
  void write_file(const std::string& header, size_t data_bytes) const {
    const std::string length{static_cast<char>(header.size() & 0xff),
                             static_cast<char>(header.size() >> 8)};
    write_bytes("\x93NUMPY\x01\x00"s + length + header + std::string(data_bytes, '\0'));
  }

  // The message of the BadInput that reading throws.
  std::string refusal() const {
    try {
      read_npy(path());
    } catch (const BadInput& error) {
      EXPECT_THAT(error.what(), HasSubstr(path().string()));
      return error.what();
    }
    ADD_FAILURE() << "read without an error";
    return "";
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(NpyTest, ReadsBackIntegers) {
  const std::vector<int32_t> values{0, 3, -7};
  const std::vector<int64_t> shape{3};
  write_npy(path(), NpyArray::Type::int32, shape, values.data());
  const NpyArray array = read_npy(path());
  EXPECT_EQ(array.type, NpyArray::Type::int32);
  EXPECT_EQ(dtype_of(array.type), std::nullopt);
  EXPECT_EQ(array.shape, shape);
  EXPECT_EQ(std::memcmp(array.data.data(), values.data(), 12), 0);
}

TEST_F(NpyTest, ReadsBackWhatItWrote) {
  const std::vector<float> values{0.0f, -1.5f, 3e38f, 4.0f, 5.0f, 6.0f};
  const std::vector<int64_t> shape{1, 2, 3, 1};
  write_npy(path(), NpyArray::Type::float32, shape, values.data());

  const NpyArray array = read_npy(path());
  EXPECT_EQ(array.type, NpyArray::Type::float32);
  EXPECT_EQ(array.shape, shape);
  ASSERT_EQ(array.data.size(), values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(array.data.data(), values.data(), array.data.size()), 0);
}

TEST_F(NpyTest, ReadsBackEveryTypeAndRank) {
  const std::vector<uint16_t> values{1, 2, 3, 4, 5, 6};
  for (const auto type : {NpyArray::Type::float16, NpyArray::Type::uint16}) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {6}, {2, 3}, {0, 5}, {1, 1, 1, 1, 1, 6}}) {
      write_npy(path(), type, shape, values.data());
      const NpyArray array = read_npy(path());
      EXPECT_EQ(array.type, type);
      EXPECT_EQ(array.shape, shape);
    }
  }
}

// Byte for byte what numpy.save writes (NumPy 1.24): np.array([[1, 2]], '<u2').
TEST_F(NpyTest, WritesWhatNumpyWrites) {
  const std::vector<uint16_t> values{1, 2};
  write_npy(path(), NpyArray::Type::uint16, std::vector<int64_t>{1, 2}, values.data());
  std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (1, 2), }";
  header.resize(117, ' ');
  EXPECT_EQ(read_bytes(), "\x93NUMPY\x01\x00\x76\x00"s + header + "\n\x01\x00\x02\x00"s);
}

TEST_F(NpyTest, ReadsVersionsTwoAndThree) {
  const std::string header = "{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }\n";
  const std::string length{static_cast<char>(header.size()), '\0', '\0', '\0'};
  for (const char version : {'\x02', '\x03'}) {
    write_bytes("\x93NUMPY"s + version + '\0' + length + header + "abcd");
    EXPECT_THAT(read_npy(path()).shape, ElementsAre(2));
  }
}

TEST_F(NpyTest, ReadsAnyOrderSpacingAndQuotes) {
  write_file(" {\"shape\":( 2 ,3,) ,'fortran_order' :False,\t\"descr\":'<f4'} \n", 24);
  const NpyArray array = read_npy(path());
  EXPECT_EQ(array.type, NpyArray::Type::float32);
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
}

TEST_F(NpyTest, RefusesOtherArrays) {
  const auto refusal_of = [&](const std::string& descr, const std::string& order) {
    write_file("{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': (2,), }\n", 8);
    return refusal();
  };
  EXPECT_THAT(refusal_of("'<f8'", "False"), HasSubstr("expected dtype '<f4' (float32)"));
  EXPECT_THAT(refusal_of("'<f8'", "False"), HasSubstr("found '<f8'"));
  EXPECT_THAT(refusal_of("'>f4'", "False"), HasSubstr("big endian"));
  EXPECT_THAT(refusal_of("'|V2'", "False"), HasSubstr("view('uint16')"));
  EXPECT_THAT(refusal_of("'|O'", "False"), HasSubstr("found '|O'"));
  EXPECT_THAT(refusal_of("[('a', '<f4')]", "False"), HasSubstr("structured"));
  EXPECT_THAT(refusal_of("'<f4'", "True"), HasSubstr("Fortran order"));
}

TEST_F(NpyTest, RefusesSizesThatDoNotMatchTheShape) {
  const auto refusal_of = [&](const std::string& shape, size_t data_bytes) {
    write_file("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + "}\n", data_bytes);
    return refusal();
  };
  EXPECT_THAT(refusal_of("(2, 3)", 23), HasSubstr("expected 24 bytes of data for shape (2, 3)"));
  EXPECT_THAT(refusal_of("(2, 3)", 25), HasSubstr("found 25"));
  EXPECT_THAT(refusal_of("(2, 3)", 0), HasSubstr("found 0"));
  EXPECT_THAT(refusal_of("()", 8), HasSubstr("expected 4 bytes"));
  EXPECT_THAT(refusal_of("(4294967296, 4294967296)", 4), HasSubstr("over 2^63"));
  EXPECT_THAT(refusal_of("(1152921504606846976, 4)", 0), HasSubstr("over 2^63"));
  EXPECT_THAT(refusal_of("(9223372036854775808,)", 4), HasSubstr("too large"));
  EXPECT_THAT(refusal_of("(-2, -2)", 16), HasSubstr("negative length, -2"));
}

TEST_F(NpyTest, RefusesBrokenHeaders) {
  const std::string descr = "'descr': '<f4'", order = "'fortran_order': False",
                    shape = "'shape': (1,)";
  const auto refusal_of = [&](const std::string& header) {
    write_file(header, 4);
    return refusal();
  };
  EXPECT_THAT(refusal_of(""), HasSubstr("expected '{', found the end"));
  EXPECT_THAT(refusal_of("{"), HasSubstr("expected a string"));
  EXPECT_THAT(refusal_of("{}"), HasSubstr("expected the keys"));
  EXPECT_THAT(refusal_of("{" + descr + "," + order + "}"), HasSubstr("expected the keys"));
  EXPECT_THAT(refusal_of("{" + descr + "," + order + "," + shape), HasSubstr("expected '}'"));
  EXPECT_THAT(refusal_of("{" + descr + "," + order + "," + shape + "} x"), HasSubstr("text after"));
  EXPECT_THAT(refusal_of("{" + descr + " " + order + "," + shape + "}"), HasSubstr("expected '}'"));
  EXPECT_THAT(refusal_of("{" + descr + "," + descr + "}"),
              HasSubstr("the key 'descr' appears twice"));
  EXPECT_THAT(refusal_of("{'align': 1}"), HasSubstr("unknown key 'align'"));
  EXPECT_THAT(refusal_of("{'descr': '<f4}"), HasSubstr("that does not end"));
  EXPECT_THAT(refusal_of("{'descr': 4}"), HasSubstr("expected a string"));
  EXPECT_THAT(refusal_of("{'fortran_order': 0}"), HasSubstr("True or False"));
  EXPECT_THAT(refusal_of("{'shape': 3}"), HasSubstr("expected '('"));
  EXPECT_THAT(refusal_of("{'shape': (1.5,)}"), HasSubstr("expected ')'"));
  EXPECT_THAT(refusal_of("{'shape': (,)}"), HasSubstr("expected a length"));
  EXPECT_THAT(refusal_of("{'shape': (1"), HasSubstr("found the end"));
  EXPECT_THAT(refusal_of("{'shape': (" + std::string(60000, '(')), HasSubstr("expected a length"));
}

TEST_F(NpyTest, RefusesFilesThatEndEarly) {
  write_file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4);
  const std::string whole = read_bytes();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    write_bytes(whole.substr(0, bytes));
    refusal();
  }
}

TEST_F(NpyTest, RefusesOtherFiles) {
  write_bytes("PK\x03\x04 this is an .npz archive");
  EXPECT_THAT(refusal(), HasSubstr("not a .npy file"));
  write_bytes("\x93NUMPY\x04\x00\x00\x00"s);
  EXPECT_THAT(refusal(), HasSubstr("found 4.0"));
  write_bytes("\x93NUMPY\x00\x00\x00\x00"s);
  EXPECT_THAT(refusal(), HasSubstr("found 0.0"));
  write_bytes("\x93NUMPY\x02\x00\xff\xff\xff\xff"s);
  EXPECT_THAT(refusal(), HasSubstr("4294967295 bytes long"));
  write_bytes("\x93NUMPY\x01\x00\xff\xff"s);
  EXPECT_THAT(refusal(), HasSubstr("ends within its header"));
}

TEST_F(NpyTest, SaysWhichFileCannotBeReadOrWritten) {
  EXPECT_THROW(read_npy(path("missing.npy")), FileError);
  EXPECT_THROW(read_npy(path().parent_path()), FileError);
  ASSERT_EQ(::mkfifo(path("pipe.npy").c_str(), 0600), 0);
  EXPECT_THROW(read_npy(path("pipe.npy")), FileError);

  const float value = 1;
  const std::vector<int64_t> shape{1};
  EXPECT_THROW(write_npy(path("no/such/folder.npy"), NpyArray::Type::float32, shape, &value),
               FileError);
}

}  // namespace
}  // namespace flashbench
