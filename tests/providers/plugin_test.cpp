#include "providers/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "attention/error.h"
#include "files/checksum.h"
#include "tests/kernels/attention_check.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

using testing::HasSubstr;

std::string built(const std::string& name) {
  return PLUGINS_DIR "/" + name + ".so";
}

std::unique_ptr<Provider> plugin(const std::string& name) {
  return make_plugin_provider("plugin:" + name, built(name), file_checksum_text(built(name)));
}

class FaultInPlugin {
 public:
  explicit FaultInPlugin(const char* text) { setenv("FLASHBENCH_FAULT", text, 1); }
  ~FaultInPlugin() { unsetenv("FLASHBENCH_FAULT"); }
};

Problem small(Pass pass) {
  return {.pass = pass, .q_heads = 2, .kv_heads = 1, .q_len = 9, .kv_len = 17, .head_dim = 16};
}

TEST(Plugin, MatchesTheReference) {
  const auto device = make_host_device(1);
  const auto provider = plugin("plain_c");
  EXPECT_EQ(provider->name(), "plugin:plain_c");
  EXPECT_EQ(provider->device_kind(), DeviceKind::cpu);
  int checked = 0;
  for (const Pass pass : kPasses) {
    for (const Mask mask : kMasks) {
      for (const Problem& p : varied_problems(pass, mask, 40)) {
        if (p.dtype != Dtype::fp32) continue;
        SCOPED_TRACE(p.id());
        ++checked;
        ASSERT_EQ(provider->why_unsupported(p, device->info()), std::nullopt);
        const RandomInputs inputs(p);
        const RandomInputs before = inputs;
        const auto session = provider->prepare(p, *device);
        session->prepare_inputs(inputs.view());
        CheckedOutputs outputs(p);
        session->run(inputs.view(), outputs.view());
        expect_correct(p, Expectation(inputs), outputs.view());
        EXPECT_TRUE(inputs == before) << "inputs were changed";
      }
    }
  }
  EXPECT_GT(checked, 10);
}

TEST(Plugin, TakesRequestsOfDifferentLengths) {
  const auto device = make_host_device(1);
  const auto provider = plugin("plain_c");
  EXPECT_THAT(provider->optional_axes(), testing::Contains("lengths"));
  for (const Pass pass : kPasses) {
    for (const Mask mask : kMasks) {
      for (Problem p : problems_of_lengths(pass, mask, 40)) {
        p.dtype = Dtype::fp32;
        SCOPED_TRACE(p.id() + " " + p.lengths->id());
        ASSERT_EQ(provider->why_unsupported(p, device->info()), std::nullopt);
        const RandomInputs inputs(p);
        const auto session = provider->prepare(p, *device);
        CheckedOutputs outputs(p);
        session->run(inputs.view(), outputs.view());
        expect_requests_correct(inputs, outputs);
      }
    }
  }
}

// Other pages, another pool and another order of its dimensions.
TEST(Plugin, TakesPages) {
  const auto device = make_host_device(1);
  const auto provider = plugin("plain_c");
  EXPECT_THAT(provider->optional_axes(),
              testing::IsSupersetOf(
                  {"page_size", "kv_layout", "page_order", "shared_prefix", "block_table"}));
  for (const Mask mask : kMasks) {
    for (Problem p : problems_of_lengths(Pass::forward, mask, 40)) {
      p.dtype = Dtype::fp32;
      const RandomInputs contiguous(p);
      for (const int64_t page_size : {1, 16, 48}) {
        for (const KvLayout layout : kKvLayouts) {
          SCOPED_TRACE(p.id() + " " + p.lengths->id() + " page_size " + std::to_string(page_size));
          const PagedInputs paged(contiguous, page_size, layout, random_table(p, page_size, 3, 1));
          ASSERT_EQ(provider->why_unsupported(paged.problem(), device->info()), std::nullopt);
          const auto session = provider->prepare(paged.problem(), *device);
          CheckedOutputs outputs(paged.problem());
          session->run(paged.view(), outputs.view());
          expect_requests_correct(contiguous, outputs);
        }
      }
    }
  }
}

TEST(Plugin, IsNotAskedAboutMoreTokensThanCuSeqlensCounts) {
  const auto device = make_host_device(1);
  Problem p = small(Pass::forward);
  p.layout = Layout::ragged;
  p.set_lengths(std::make_shared<const Lengths>(
      std::vector<RequestLengths>{{1, int64_t{1} << 30}, {1, int64_t{1} << 30}}));
  EXPECT_THAT(plugin("plain_c")->why_unsupported(p, device->info()).value_or(""),
              HasSubstr("cu_seqlens has 32 bits"));
}

TEST(Plugin, IsCountedAndDescribed) {
  const auto device = make_host_device(1);
  const auto provider = plugin("plain_c");
  const Problem p = small(Pass::forward);
  const auto session = provider->prepare(p, *device);
  EXPECT_EQ(session->kernel(), "attention_forward");
  EXPECT_EQ(session->requested_bytes(), std::nullopt);
  EXPECT_EQ(device->used().workspace, p.kv_len * static_cast<int64_t>(sizeof(float)));
  EXPECT_EQ(provider->workspace_bytes(p, device->info()), device->used().workspace);
  EXPECT_EQ(provider->description(), "plain C, fp32, one thread");
}

TEST(Plugin, RefusesInItsOwnWords) {
  const auto device = make_host_device(1);
  const auto provider = plugin("plain_c");
  Problem p = small(Pass::forward);
  p.dtype = Dtype::bf16;
  EXPECT_EQ(provider->why_unsupported(p, device->info()),
            "plain C has no 16-bit floats: fp32 only");
  DeviceInfo gpu;
  gpu.kind = DeviceKind::cuda;
  EXPECT_EQ(provider->why_unsupported(small(Pass::forward), gpu), "it needs a cpu device");
}

TEST(Plugin, ReportsErrorsAsWhatTheyAre) {
  const auto device = make_host_device(1);
  const auto provider = plugin("faulty");
  const RandomInputs inputs(small(Pass::forward));
  CheckedOutputs outputs(small(Pass::forward));
  const auto run = [&](const char* fault) {
    const FaultInPlugin told(fault);
    provider->prepare(small(Pass::forward), *device)->run(inputs.view(), outputs.view());
  };
  try {
    run("error");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "reported, as told");
  }
  try {
    run("garbage");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("run returned the status 77, which is not allowed: ????"));
    EXPECT_LT(std::string(error.what()).size(), 1000u);
  }
  EXPECT_THROW(run("out_of_memory"), OutOfMemory);
}

void expect_refused(const std::string& path, const std::string& xxh3, const std::string& said) {
  try {
    load_plugin(path, xxh3);
    FAIL() << path << " was loaded";
  } catch (const BadInput& error) {
    EXPECT_THAT(error.what(), HasSubstr(path));
    EXPECT_THAT(error.what(), HasSubstr(said));
  }
}

TEST(Plugin, WhatIsNoneIsRefused) {
  const std::pair<const char*, const char*> wrong[] = {
      {"no_version", "it does not export flashbench_plugin_abi_version"},
      {"no_table", "it does not export flashbench_plugin_table"},
      {"other_version", "expected version 1 of the plugin interface, found 2"},
      {"short_table", "bytes, found 8"},
      {"no_kind", "expected a device_kind of 0 or 1, found 7"},
      {"no_functions", "supports of flashbench_plugin_table is null"},
  };
  for (const auto& [name, said] : wrong) {
    expect_refused(built(name), file_checksum_text(built(name)), said);
  }
  const TemporaryFolder folder;
  const std::string text = folder / "text.so";
  std::ofstream(text) << "no shared object";
  expect_refused(text, file_checksum_text(text), "it cannot be loaded");
  expect_refused(built("plain_c"), "0123456789abcdef", "the file has changed since the start");
}

}  // namespace
}  // namespace flashbench
