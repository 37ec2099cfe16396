// CUPTI's side of the counters: its host API, which needs no GPU, and the handling of its answers.
#include "measure/cupti_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "device/cuda.h"

namespace flashbench {
namespace {

using testing::HasSubstr;

class CuptiHostApi : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cupti()) GTEST_SKIP() << *why;
  }

  // The number of runs that reading everything for this dtype takes.
  static int passes(const char* chip_name, Dtype dtype) {
    CuptiChip chip(cupti_library(), chip_name);
    const auto metrics = wanted_metrics(chip.listed_metrics(), dtype);
    EXPECT_EQ(metrics.size(), 4u) << "memory read and written, L2, tensor operations";
    auto image = chip.config_image(metrics);
    return chip.passes(image);
  }
};

TEST_P(CuptiHostApi, OneRunTellsTrafficAndTensorOperationsOfBf16) {
  EXPECT_EQ(passes(GetParam(), Dtype::bf16), 1);
}

TEST_P(CuptiHostApi, TwoRunsAreEnoughForEveryDtype) {
  EXPECT_LE(passes(GetParam(), Dtype::fp16), 2);
  EXPECT_LE(passes(GetParam(), Dtype::fp32), 2);
}

INSTANTIATE_TEST_SUITE_P(Chips, CuptiHostApi,
                         testing::Values("GA100", "GA102", "AD102", "GH100", "GB100", "GB202"),
                         [](const auto& chip) { return std::string(chip.param); });

TEST_F(CuptiHostApi, AnUnknownChipIsRefused) {
  try {
    const CuptiChip chip(cupti_library(), "GX999");
    FAIL();
  } catch (const CounterError& error) {
    EXPECT_EQ(error.status, CounterStatus::unsupported_chip);
    EXPECT_THAT(error.what(), HasSubstr("GX999"));
  }
}

TEST_F(CuptiHostApi, WithoutADriverNothingIsCounted) {
  if (!why_no_cuda()) GTEST_SKIP() << "there is a driver";
  const auto reader = make_cupti_reader(cupti_library(), {.synchronize = [] {}});
  EXPECT_EQ(reader->state().status, CounterStatus::no_driver);
  EXPECT_NE(reader->state().code, 0);
}

// A fake CUPTI for which all steps succeed, on a chip with one metric; tests make one step fail.
struct Fake {
  static inline double value;
  static inline size_t ranges, dropped, stops_to_the_end;
  static inline CUptiResult enabled;
  static inline CUpti_Profiler_Support_Level mining, confidential;
  static inline int enables, disables;

  static CuptiLibrary library() {
    value = 7;
    ranges = 1;
    dropped = 0;
    stops_to_the_end = 1;
    enabled = CUPTI_SUCCESS;
    mining = confidential = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
    enables = disables = 0;

    CuptiLibrary l;
    l.version = [](uint32_t* version) { return *version = 130001, CUPTI_SUCCESS; };
    l.result_string = [](CUptiResult, const char** text) {
      return *text = "CUPTI_ERROR_SOMETHING", CUPTI_SUCCESS;
    };
    l.initialize = [](auto*) { return CUPTI_SUCCESS; };
    l.chip_name = [](auto* p) { return p->pChipName = "GF1", CUPTI_SUCCESS; };
    l.device_supported = [](auto* p) {
      p->architecture = p->sli = p->vGpu = p->wsl = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
      p->cmp = mining;
      p->confidentialCompute = confidential;
      p->isSupported = std::min(mining, confidential);
      return CUPTI_SUCCESS;
    };
    l.counter_availability = [](auto* p) {
      return p->counterAvailabilityImageSize = 8, CUPTI_SUCCESS;
    };
    l.host_supported_chips = [](auto* p) {
      static const char* const chips[] = {"GF0", "GF1"};
      p->numChips = 2;
      p->ppChipNames = chips;
      return CUPTI_SUCCESS;
    };
    l.host_initialize = [](auto*) { return CUPTI_SUCCESS; };
    l.host_deinitialize = [](auto*) { return CUPTI_SUCCESS; };
    l.host_base_metrics = [](auto* p) {
      static const char* metrics[] = {"lts__t_bytes"};
      p->numMetrics = 1;
      p->ppMetricNames = metrics;
      return CUPTI_SUCCESS;
    };
    l.host_add_metrics = [](auto*) { return CUPTI_SUCCESS; };
    l.host_config_image_size = [](auto* p) { return p->configImageSize = 8, CUPTI_SUCCESS; };
    l.host_config_image = [](auto*) { return CUPTI_SUCCESS; };
    l.host_passes = [](auto* p) { return p->numOfPasses = 1, CUPTI_SUCCESS; };
    l.host_evaluate = [](auto* p) {
      return p->pMetricValues[0] = value + static_cast<double>(p->rangeIndex), CUPTI_SUCCESS;
    };
    l.enable = [](auto*) { return ++enables, enabled; };
    l.disable = [](auto*) { return ++disables, CUPTI_SUCCESS; };
    l.counter_data_size = [](auto* p) { return p->counterDataSize = 8, CUPTI_SUCCESS; };
    l.counter_data_initialize = [](auto*) { return CUPTI_SUCCESS; };
    l.set_config = [](auto*) { return CUPTI_SUCCESS; };
    l.start = [](auto*) { return CUPTI_SUCCESS; };
    l.stop = [](auto* p) {
      if (stops_to_the_end > 0) --stops_to_the_end;
      return p->isAllPassSubmitted = stops_to_the_end == 0, CUPTI_SUCCESS;
    };
    l.push_range = [](auto*) { return CUPTI_SUCCESS; };
    l.pop_range = [](auto*) { return CUPTI_SUCCESS; };
    l.decode = [](auto* p) { return p->numOfRangeDropped = dropped, CUPTI_SUCCESS; };
    l.counter_data_info = [](auto* p) { return p->numTotalRanges = ranges, CUPTI_SUCCESS; };
    return l;
  }
};

class CuptiReaderTest : public testing::Test {
 protected:
  std::unique_ptr<CounterReader> reader() {
    return make_cupti_reader(library_, {.synchronize = [] {}});
  }
  // The error when counting nothing.
  std::string failure() {
    try {
      reader()->count(
          Dtype::bf16, [] {}, [] {});
      return "";
    } catch (const CounterError& error) {
      EXPECT_EQ(error.status, CounterStatus::failed);
      return error.what();
    }
  }

  CuptiLibrary library_ = Fake::library();
};

TEST_F(CuptiReaderTest, ReadsByName) {
  const auto made = reader();
  EXPECT_EQ(made->state().status, CounterStatus::ok) << made->state().reason;
  EXPECT_EQ(made->state().chip, "GF1");
  EXPECT_EQ(made->state().cupti, 130001);
  std::string order;
  const CounterValues values = made->count(
      Dtype::bf16, [&] { order += "b"; }, [&] { order += "w"; });
  EXPECT_EQ(order, "bw");
  EXPECT_EQ(total(values, Counted::l2), 7);
  EXPECT_FALSE(total(values, Counted::dram_read));
  EXPECT_EQ(Fake::enables, 2);
  EXPECT_EQ(Fake::disables, 2) << "the counters are free between";
}

TEST_F(CuptiReaderTest, EveryLaunchIsARange) {
  Fake::ranges = 3;
  const auto launches = reader()->count_launches(
      Dtype::bf16, [] {}, [] {});
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(total(launches[2], Counted::l2), 9);
}

TEST_F(CuptiReaderTest, ARefusalIsDeniedWithCodeAndAdvice) {
  Fake::enabled = CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  const auto made = reader();
  EXPECT_EQ(made->state().status, CounterStatus::denied);
  EXPECT_EQ(made->state().code, 35);
  EXPECT_THAT(made->state().reason, HasSubstr("cuptiRangeProfilerEnable"));
  EXPECT_THAT(made->state().reason, HasSubstr("NVreg_RestrictProfilingToAdminUsers"));
  EXPECT_EQ(made->state().chip, "GF1");
}

TEST_F(CuptiReaderTest, OtherCodesAreWhatTheyAre) {
  const std::pair<CUptiResult, CounterStatus> expected[] = {
      {CUPTI_ERROR_HARDWARE_BUSY, CounterStatus::failed},
      {CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES, CounterStatus::denied},
      {CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED, CounterStatus::denied},
      {CUPTI_ERROR_NOT_SUPPORTED, CounterStatus::unsupported_chip},
      {CUPTI_ERROR_UNKNOWN, CounterStatus::failed}};
  for (const auto& [result, status] : expected) {
    Fake::enabled = result;
    EXPECT_EQ(reader()->state().status, status) << result;
    EXPECT_EQ(reader()->state().code, result);
  }
}

TEST_F(CuptiReaderTest, EachReasonOfTheDeviceIsNamed) {
  Fake::mining = CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
  EXPECT_EQ(reader()->state().status, CounterStatus::unsupported_chip);
  EXPECT_THAT(reader()->state().reason, HasSubstr("mining"));
  Fake::mining = CUPTI_PROFILER_CONFIGURATION_SUPPORTED;
  Fake::confidential = CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED;
  EXPECT_EQ(reader()->state().status, CounterStatus::denied);
  EXPECT_THAT(reader()->state().reason, HasSubstr("confidential"));
}

TEST_F(CuptiReaderTest, AChipThatCuptiDoesNotKnowIsUnsupported) {
  library_.chip_name = [](auto* p) { return p->pChipName = "GF9", CUPTI_SUCCESS; };
  EXPECT_EQ(reader()->state().status, CounterStatus::unsupported_chip);
  EXPECT_THAT(reader()->state().reason, HasSubstr("GF9"));
}

TEST_F(CuptiReaderTest, NotTheRangesThatWereAskedForIsAFailure) {
  Fake::ranges = 2;
  EXPECT_THAT(failure(), HasSubstr("found 2"));
  Fake::ranges = 0;
  EXPECT_THAT(failure(), HasSubstr("found 0"));
  Fake::ranges = 1;
  Fake::dropped = 1;
  EXPECT_THAT(failure(), HasSubstr("dropped"));
}

TEST_F(CuptiReaderTest, WhatIsNoCountIsAFailure) {
  Fake::value = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(failure(), HasSubstr("nan"));
  Fake::value = -1;
  EXPECT_THAT(failure(), HasSubstr("-1"));
}

TEST_F(CuptiReaderTest, PassesWithoutEndAreAFailure) {
  Fake::stops_to_the_end = 100;
  EXPECT_THAT(failure(), HasSubstr("passes"));
}

}  // namespace
}  // namespace flashbench
