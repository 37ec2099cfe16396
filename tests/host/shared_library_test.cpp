#include "host/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flashbench {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

TEST(SharedLibrary, OpensTheFirstPlaceThatExists) {
  SharedLibrary library({"libnowhere.so.1", "libm.so.6", "libc.so.6"});
  EXPECT_NE(library.handle(), nullptr);
  EXPECT_THAT(library.path(), EndsWith("/libm.so.6"));
  double (*cosine)(double) = nullptr;
  library.find(cosine, "cos");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0), 1);
  EXPECT_EQ(library.error(), "");
}

TEST(SharedLibrary, SaysWhyNoPlaceCanBeOpened) {
  SharedLibrary library({"libnowhere.so.1", "libneither.so.1"});
  EXPECT_THAT(library.error(), HasSubstr("libnowhere.so.1"));
  EXPECT_EQ(library.handle(), nullptr);
  EXPECT_EQ(library.path(), "");
  double (*cosine)(double) = nullptr;
  library.find(cosine, "cos");
  EXPECT_EQ(cosine, nullptr);
}

TEST(SharedLibrary, NamesAMissingEntryPoint) {
  SharedLibrary library({"libm.so.6"});
  void (*missing)() = nullptr;
  library.find(missing, "no_such_function");
  EXPECT_EQ(missing, nullptr);
  EXPECT_EQ(library.error(), "it has no no_such_function");
}

TEST(SharedLibrary, ClosesALibraryThatIsNoUse) {
  SharedLibrary library({"libm.so.6"});
  library.close();
  EXPECT_EQ(library.handle(), nullptr);
}

}  // namespace
}  // namespace flashbench
