#include "sweep/choose.h"

#include <gtest/gtest.h>

#include "attention/error.h"

namespace flashbench {
namespace {

TEST(Choose, NamesInTheOrderGiven) {
  const auto chosen = choose_providers({"tiled", "naive", "tiled"}, DeviceKind::cpu);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0]->name(), "tiled");
  EXPECT_EQ(chosen[1]->name(), "naive");
}

TEST(Choose, NoNamesMeansAllOfTheDevice) {
  for (const Provider* provider : choose_providers({}, DeviceKind::cpu)) {
    EXPECT_EQ(provider->device_kind(), DeviceKind::cpu);
  }
  EXPECT_GE(choose_providers({}, DeviceKind::cpu).size(), 2u);
}

TEST(Choose, UnknownNamesAreRefusedWithTheKnownOnes) {
  try {
    choose_providers({"tilde"}, DeviceKind::cpu);
    FAIL();
  } catch (const BadInput& error) {
    EXPECT_NE(std::string(error.what()).find("naive, tiled"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("\"tilde\""), std::string::npos);
  }
}

}  // namespace
}  // namespace flashbench
