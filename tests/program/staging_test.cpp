#include "program/staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

namespace flashbench {
namespace {

TEST(Staging, WhatIsWrittenIsReadFromTheFile) {
  Staging staging;
  staging.reserve(10);
  std::memcpy(staging.data(), "0123456789", 10);
  std::ifstream file(staging.path(), std::ios::binary);
  std::string text(10, ' ');
  file.read(text.data(), 10);
  EXPECT_EQ(text, "0123456789");
}

TEST(Staging, GrowsAndKeepsItsPath) {
  Staging staging;
  staging.reserve(10);
  const std::string path = staging.path();
  staging.reserve(size_t{1} << 20);
  EXPECT_EQ(staging.bytes(), size_t{1} << 20);
  static_cast<char*>(staging.data())[(1 << 20) - 1] = 'x';
  staging.reserve(5);
  EXPECT_EQ(staging.bytes(), size_t{1} << 20);
  EXPECT_EQ(staging.path(), path);
}

}  // namespace
}  // namespace flashbench
