#include "case/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "attention/error.h"
#include "providers/plugin.h"
#include "providers/providers.h"

namespace flashbench {
namespace {

TEST(Choose, NamesInTheOrderGiven) {
  const auto chosen = choose_providers({"tiled", "naive", "tiled"}, DeviceKind::cpu);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0]->name(), "tiled");
  EXPECT_EQ(chosen[1]->name(), "naive");
}

TEST(Choose, AnAsteriskStandsForTheRestOfTheName) {
  std::vector<std::string_view> chosen;
  for (const Provider* provider : choose_providers({"naive", "t*", "*"}, DeviceKind::cpu)) {
    chosen.push_back(provider->name());
  }
  EXPECT_THAT(chosen, testing::ElementsAre("naive", "tiled", "tiled:gather", "tiled:ulysses",
                                           "tiled:ring", "tiled:gated", "tiled:dcp", "emulated",
                                           "emulated:fp22", "emulated:o_e4m3"));
  EXPECT_THAT([] { choose_providers({"x*"}, DeviceKind::cpu); },
              testing::ThrowsMessage<BadInput>(testing::HasSubstr("\"x*\"")));
}

TEST(Choose, AProviderForGpusSaysThatItNeedsOne) {
  std::vector<std::string_view> for_gpus(kCudaOnlyNames.begin(), kCudaOnlyNames.end());
  for_gpus.insert(for_gpus.end(), {"tiled:sm*", "tiled:sm80"});
  for (const std::string_view name : for_gpus) {
    EXPECT_THAT([&] { choose_providers({std::string(name)}, DeviceKind::cpu); },
                testing::ThrowsMessage<BadInput>(testing::HasSubstr("needs a cuda device")));
  }
  for (const auto& provider : all_providers()) {  // of a build with CUDA: all are known
    if (provider->device_kind() == DeviceKind::cpu) continue;
    EXPECT_THAT([&] { choose_providers({std::string(provider->name())}, DeviceKind::cuda); },
                testing::Not(testing::Throws<BadInput>()));
    const bool on_cpu = provider->name() == "naive" || provider->name() == "tiled";
    const bool known = std::ranges::find(kCudaOnlyNames, provider->name()) != kCudaOnlyNames.end();
    EXPECT_NE(known || provider->name().starts_with(kFamilyPrefix), on_cpu) << provider->name();
  }
}

TEST(Choose, NoNamesMeansAllOfTheDevice) {
  for (const Provider* provider : choose_providers({}, DeviceKind::cpu)) {
    EXPECT_EQ(provider->device_kind(), DeviceKind::cpu);
  }
  EXPECT_GE(choose_providers({}, DeviceKind::cpu).size(), 2u);
}

TEST(Choose, PluginsFollowUnlessTheyAreNamed) {
  std::vector<std::unique_ptr<Provider>> plugins;
  plugins.push_back(make_plugin_provider("plugin:a", "/a.so", ""));
  plugins.push_back(make_plugin_provider("plugin:b", "/b.so", ""));
  const auto names = [&](const std::vector<std::string>& wanted) {
    std::vector<std::string_view> chosen;
    for (const Provider* p : choose_providers(wanted, DeviceKind::cpu, plugins)) {
      chosen.push_back(p->name());
    }
    return chosen;
  };
  EXPECT_EQ(names({}), (std::vector<std::string_view>{"naive", "tiled", "plugin:a", "plugin:b"}));
  EXPECT_EQ(names({"plugin:b", "naive"}),
            (std::vector<std::string_view>{"plugin:b", "naive", "plugin:a"}));
}

TEST(Choose, AbsentProvidersRunOnlyWhereTheyAreNamed) {
  setenv("FLASHBENCH_CUDNN", "/nowhere", 1);
  for (const Provider* provider : choose_providers({}, DeviceKind::cuda)) {
    EXPECT_EQ(provider->why_absent(), std::nullopt) << provider->name();
  }
  for (const auto& provider : all_providers()) {
    if (!provider->why_absent()) continue;
    const std::string name(provider->name());
    EXPECT_EQ(choose_providers({name}, provider->device_kind()).at(0)->name(), name);
    EXPECT_EQ(provider->why_unsupported(Problem(), DeviceInfo()), provider->why_absent());
  }
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
