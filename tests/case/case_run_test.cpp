#include "case/case_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>

#include "attention/half.h"
#include "measure/round_ceilings.h"
#include "tests/case/fake_provider.h"

namespace flashbench {
namespace {

class CaseRun : public testing::Test {
 protected:
  CaseRun() {
    options_.measure.warmup_runs = 1;
    options_.measure.warmup_seconds = 0;
    options_.measure.min_samples = 3;
    options_.measure.max_samples = 3;
    item_.problem = {.q_heads = 2, .kv_heads = 1, .q_len = 33, .kv_len = 40, .head_dim = 16};
  }

  Record run(const Provider& provider) {
    const auto records = run_case(item_, {&provider}, *device_, gemm_.get(), options_, watch_);
    EXPECT_EQ(records.size(), 1u);
    const Record& record = records.at(0);
    EXPECT_TRUE(record.status == Status::ok || !record.verdict.passed()) << record.reason;
    return record;
  }
  Record run(FakeProvider::Tamper tamper) { return run(FakeProvider(std::move(tamper))); }

  static float* output(const Outputs& outputs) { return static_cast<float*>(outputs.o.data); }

  std::unique_ptr<Device> device_ = make_host_device(2);
  std::unique_ptr<GemmCeiling> gemm_ = make_gemm_ceiling(*device_, Dtype::fp32);
  CaseRunOptions options_;
  Watch watch_;
  Case item_;
};

TEST_F(CaseRun, AllProvidersPassInBothPasses) {
  for (Pass pass : kPasses) {
    item_.problem.pass = pass;
    const auto providers = choose_providers({}, DeviceKind::cpu);
    const auto records = run_case(item_, providers, *device_, gemm_.get(), options_);
    ASSERT_EQ(records.size(), providers.size());
    for (const Record& record : records) {
      EXPECT_EQ(record.status, Status::ok) << record.provider << ": " << record.reason;
      EXPECT_TRUE(record.verdict.passed());
      EXPECT_EQ(record.measurement->seconds.size(), 3u);
      EXPECT_EQ(record.gemm->seconds.size(), 3u);
      EXPECT_GT(*record.prepare_seconds, 0);
      EXPECT_GT(*record.requested_bytes, 0);
      EXPECT_GT(record.memory->tracked.input, 0);
      EXPECT_GT(record.memory->tracked.output, 0);
      EXPECT_FALSE(record.kernel.empty());
    }
  }
}

// The time that a case's providers share counts for the first.
TEST_F(CaseRun, EveryRowSaysWhereItsTimeWent) {
  const auto providers = choose_providers({}, DeviceKind::cpu);
  const auto start = std::chrono::steady_clock::now();
  const auto records = run_case(item_, providers, *device_, gemm_.get(), options_);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  double sum = 0;
  for (const Record& record : records) {
    std::set<std::string> phases;
    for (const auto& [phase, seconds] : record.wall.phases()) {
      EXPECT_GE(seconds, 0) << phase;
      phases.insert(phase);
    }
    const bool first = &record == &records.front();
    for (const char* phase : {"inputs", "reference", "gemm"}) {
      EXPECT_EQ(phases.contains(phase), first) << record.provider << ": " << phase;
    }
    for (const char* phase :
         {"prepare", "verify", "outputs", "judge", "warm_up", "samples", "audit"}) {
      EXPECT_TRUE(phases.contains(phase)) << record.provider << ": " << phase;
    }
    sum += record.wall.total();
  }
  EXPECT_LE(sum, took.count());
}

// A row without a provider's own time has none of a ceiling either.
TEST_F(CaseRun, WhatBoundsACaseOfFewFlopsIsTimedInItsRounds) {
  item_.problem.q_len = 1;
  for (const Record& record :
       run_case(item_, choose_providers({}, DeviceKind::cpu), *device_, gemm_.get(), options_)) {
    ASSERT_EQ(record.round_ceilings.size(), 2u) << record.provider;
    EXPECT_EQ(record.round_ceilings[0].name, "stream");
    EXPECT_EQ(record.round_ceilings[1].name, "null_launch");
    for (const Ceiling& ceiling : record.round_ceilings) {
      EXPECT_EQ(ceiling.measurement.seconds.size(), 3u);
    }
  }
  const Record wrong = run([](const Inputs&, const Outputs& out, int) { output(out)[5] += 1; });
  EXPECT_EQ(wrong.status, Status::failed);
  EXPECT_TRUE(wrong.round_ceilings.empty());
}

TEST_F(CaseRun, PartsOfARunAreTimedInItsRounds) {
  std::multiset<RunPart> ran;
  FakeProvider provider([](const Inputs&, const Outputs&, int) {});
  provider.parts = {RunPart::rounding, RunPart::attention};
  provider.part_runs = [&](RunPart part, const Inputs&, const Outputs&) {
    ran.insert(part);
    return false;
  };
  const Record record = run(provider);
  EXPECT_EQ(record.status, Status::ok) << record.reason;
  ASSERT_EQ(record.parts.size(), 2u);
  EXPECT_EQ(record.parts[0].part, RunPart::rounding);
  EXPECT_EQ(record.parts[1].part, RunPart::attention);
  for (const PartTime& part : record.parts) EXPECT_EQ(part.measurement.seconds.size(), 3u);
  // A warm-up, three samples with one before each or cold caches, and the audit.
  EXPECT_EQ(ran.count(RunPart::rounding), ran.count(RunPart::attention));
  EXPECT_GE(ran.count(RunPart::rounding), 5u);
}

// What rounding the inputs is to be faster than.
TEST_F(CaseRun, RowsOnRoundedInputsHaveTheTimeWithoutRounding) {
  item_.problem.dtype = Dtype::bf16;
  item_.problem.quantize = Quantize::e4m3_head;
  item_.problem.head_dim = 64;
  const auto providers = choose_providers({"emulated"}, DeviceKind::cpu);
  const Record record = run_case(item_, providers, *device_, gemm_.get(), options_, watch_).at(0);
  EXPECT_EQ(record.status, Status::ok) << record.reason;
  const Ceiling* unrounded = round_ceiling(record, kUnrounded);
  ASSERT_NE(unrounded, nullptr);
  EXPECT_EQ(unrounded->measurement.seconds.size(), 3u);
  EXPECT_THAT(unrounded->description, testing::StartsWith("cpu_tiled_forward"));
  EXPECT_GT(*speedup_vs_unrounded(record), 0);
  item_.problem.quantize = Quantize::none;
  EXPECT_EQ(round_ceiling(run(FakeProvider::real(DeviceKind::cpu)), kUnrounded), nullptr);
}

TEST_F(CaseRun, APartThatLeavesOutputsUnwrittenFails) {
  FakeProvider forgetful([](const Inputs&, const Outputs&, int) {});
  forgetful.parts = {RunPart::rounding, RunPart::attention};
  forgetful.part_runs = [&](RunPart part, const Inputs&, const Outputs&) {
    return part == RunPart::attention;
  };
  const Record record = run(forgetful);
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_THAT(record.reason, testing::StartsWith("a timed run of the attention alone left "));
  EXPECT_TRUE(record.parts.empty());
}

TEST_F(CaseRun, APartThatThrowsIsAnErrorWithItsReason) {
  FakeProvider broken([](const Inputs&, const Outputs&, int) {});
  broken.parts = {RunPart::rounding, RunPart::attention};
  broken.part_runs = [&](RunPart part, const Inputs&, const Outputs&) -> bool {
    if (part == RunPart::rounding) throw std::runtime_error("no rounding today");
    return false;
  };
  const Record record = run_case(item_, {&broken}, *device_, gemm_.get(), options_, watch_).at(0);
  EXPECT_EQ(record.status, Status::error);
  EXPECT_EQ(record.reason, "no rounding today");
}

// What the attention writes alone does not hide what a whole run has written.
TEST_F(CaseRun, AWrongWholeRunFailsWhateverItsPartsWrite) {
  bool wrong = false;
  int whole_runs = 0;
  FakeProvider provider([&](const Inputs&, const Outputs& out, int) {
    if (wrong) output(out)[5] += 0.01f;
  });
  provider.parts = {RunPart::rounding, RunPart::attention};
  provider.part_runs = [&](RunPart part, const Inputs&, const Outputs&) {
    whole_runs += part == RunPart::whole ? 1 : 0;
    wrong = part == RunPart::whole && whole_runs > 2;  // in timed runs
    return false;
  };
  const Record record = run(provider);
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_FALSE(record.measurement);
}

TEST_F(CaseRun, VerifyingAloneTakesNoTime) {
  options_.time = false;
  const Record record = run(FakeProvider::real(DeviceKind::cpu));
  EXPECT_EQ(record.status, Status::ok);
  EXPECT_FALSE(record.measurement);
}

TEST_F(CaseRun, AWrongValueFailsAndHasNoTime) {
  const Record record =
      run([](const Inputs&, const Outputs& out, int) { output(out)[5] += 0.01f; });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_FALSE(record.reason.empty());
  EXPECT_FALSE(record.measurement);
}

TEST_F(CaseRun, ANaNFails) {
  const Record record = run([](const Inputs&, const Outputs& out, int) {
    output(out)[0] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_FALSE(record.measurement);
}

TEST_F(CaseRun, AWrongTimedRunFailsThoughTheFirstWasRight) {
  const Record record =
      run([](const Inputs&, const Outputs& out, int n) { output(out)[5] += n > 2 ? 0.01f : 0; });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_EQ(record.verdict.status, Verdict::Status::failed);
  EXPECT_FALSE(record.measurement);
}

TEST_F(CaseRun, ATimedRunThatWritesNothingFails) {
  const size_t bytes = static_cast<size_t>(item_.problem.query_elements()) * sizeof(float);
  const Record record = run([bytes](const Inputs&, const Outputs& out, int n) {
    if (n > 2) std::memset(out.o.data, kPoisonByte, bytes);  // like an early return
  });
  EXPECT_EQ(record.status, Status::failed);
  EXPECT_NE(record.reason.find("unwritten"), std::string::npos);
  EXPECT_EQ(record.verdict.status, Verdict::Status::failed);  // although the first run passed
  EXPECT_EQ(record.verdict.reason, record.reason);
}

TEST_F(CaseRun, AnErrorOfATimedRunLeavesNoVerdict) {
  const Record record = run([](const Inputs&, const Outputs&, int n) {
    if (n > 2) throw std::runtime_error("broken");
  });
  EXPECT_EQ(record.status, Status::error);
  EXPECT_EQ(record.verdict.status, Verdict::Status::not_checked);
  EXPECT_TRUE(record.verdict.tensors.empty());
}

TEST_F(CaseRun, APluginThatChangesInputsLaterFailsAlone) {
  const FakeProvider vandal(
      [](const Inputs& inputs, const Outputs&, int n) {
        if (n == 2) static_cast<float*>(const_cast<void*>(inputs.k.data))[3] = 100;
      },
      "plugin:vandal");
  const auto records = run_case(item_, {&FakeProvider::real(DeviceKind::cpu), &vandal}, *device_,
                                gemm_.get(), options_);
  EXPECT_EQ(records[0].status, Status::ok) << records[0].reason;
  EXPECT_EQ(records[1].status, Status::failed);
  EXPECT_EQ(records[1].reason, "it changed its inputs");
}

TEST_F(CaseRun, ChangedInputsFailAndAreRestoredForTheNext) {
  const FakeProvider vandal([](const Inputs& inputs, const Outputs&, int) {
    static_cast<float*>(const_cast<void*>(inputs.k.data))[3] = 100;
  });
  const auto records = run_case(item_, {&vandal, &FakeProvider::real(DeviceKind::cpu)}, *device_,
                                gemm_.get(), options_);
  EXPECT_EQ(records[0].status, Status::failed);
  EXPECT_EQ(records[0].reason, "it changed its inputs");
  EXPECT_EQ(records[1].status, Status::ok) << records[1].reason;
}

TEST_F(CaseRun, AnExceptionIsARowWithItsText) {
  const Record record =
      run([](const Inputs&, const Outputs&, int) { throw std::runtime_error("no luck"); });
  EXPECT_EQ(record.status, Status::error);
  EXPECT_EQ(record.reason, "no luck");
}

TEST_F(CaseRun, OutOfMemoryIsARow) {
  FakeProvider greedy([](const Inputs&, const Outputs&, int) {});
  greedy.extra_bytes = size_t{1} << 50;
  const Record record = run(greedy);
  EXPECT_EQ(record.status, Status::out_of_memory);
  EXPECT_FALSE(record.measurement);
}

// Some providers refuse a problem only when they are prepared.
TEST_F(CaseRun, ARefusalInPrepareIsUnsupportedToo) {
  class Late final : public FakeProvider {
   public:
    Late() : FakeProvider([](const Inputs&, const Outputs&, int) {}, "late") {}
    std::unique_ptr<Session> prepare(const Problem&, Device&) const override {
      throw Unsupported("no engine takes it");
    }
  };
  const Late late;
  const auto records = run_case(item_, {&late}, *device_, gemm_.get(), options_);
  EXPECT_EQ(records.at(0).status, Status::unsupported);
  EXPECT_EQ(records.at(0).reason, "no engine takes it");
}

TEST_F(CaseRun, UnsupportedGivesItsSentence) {
  FakeProvider picky([](const Inputs&, const Outputs&, int) {});
  picky.refusal = "it does not like this";
  const Record record = run(picky);
  EXPECT_EQ(record.status, Status::unsupported);
  EXPECT_EQ(record.reason, "it does not like this");
  EXPECT_EQ(record.verdict.status, Verdict::Status::not_checked);
}

TEST_F(CaseRun, APlacementThatIsNotSupportedGivesItsSentence) {
  FakeProvider picky([](const Inputs&, const Outputs&, int) {});
  picky.placement_refusal = "it wants aligned rows";
  EXPECT_EQ(run(picky).status, Status::ok);
  item_.placement = Placement::offset;
  EXPECT_EQ(run(picky).status, Status::unsupported);
  EXPECT_EQ(run(picky).reason, "it wants aligned rows");
}

TEST_F(CaseRun, EveryPlacementIsRightAndCountsItsTensorsOnly) {
  for (const Pass pass : kPasses) {
    item_.problem.pass = pass;
    std::vector<int64_t> outputs;
    for (const Placement placement : kPlacements) {
      item_.placement = placement;
      for (const Provider* provider : choose_providers({}, DeviceKind::cpu)) {
        const Record record = run(*provider);
        ASSERT_EQ(record.status, Status::ok) << record.reason;
        outputs.push_back(record.memory->tracked.input + record.memory->tracked.output);
        EXPECT_EQ(outputs.back(), item_.problem.compulsory_bytes());
      }
    }
  }
}

TEST_F(CaseRun, ACaseThatCannotFitIsSkippedBeforeItAllocates) {
  item_.problem.kv_len = int64_t{1} << 40;
  const Record record = run(FakeProvider::real(DeviceKind::cpu));
  EXPECT_EQ(record.status, Status::skipped);
  EXPECT_NE(record.reason.find("GiB of host memory"), std::string::npos) << record.reason;
}

TEST_F(CaseRun, InterruptedBeforeTheStartIsSkipped) {
  watch_.interrupted = [] { return true; };
  EXPECT_EQ(run(FakeProvider::real(DeviceKind::cpu)).status, Status::skipped);
}

TEST_F(CaseRun, MemoryIsGivenBackAfterwards) {
  const int64_t before = device_->used().total();
  run(FakeProvider::real(DeviceKind::cpu));
  EXPECT_EQ(device_->used().total(), before);
}

// With scores in the hundreds, storing them in bf16 explains an error of a fifth of O.
TEST_F(CaseRun, OutputsThatStoredScoresAloneExcuseAreCoarseAndTimed) {
  item_.problem.dtype = Dtype::bf16;
  item_.problem.scale = 8;
  FakeProvider provider([](const Inputs&, const Outputs& out, int) {
    for (int64_t i = 0; i < out.o.elements(); ++i) {
      store_element(out.o.data, Dtype::bf16, i, 1.2f * load_element(out.o.data, Dtype::bf16, i));
    }
  });
  EXPECT_EQ(run(provider).status, Status::failed);
  provider.scores = Dtype::bf16;
  const Record record = run(provider);
  EXPECT_EQ(record.status, Status::ok) << record.reason;
  EXPECT_EQ(verified(record.verdict), "coarse");
  EXPECT_EQ(record.verdict.coarse.find("o is off by 20"), 0u) << record.verdict.coarse;
  EXPECT_TRUE(record.measurement);
}

}  // namespace
}  // namespace flashbench
