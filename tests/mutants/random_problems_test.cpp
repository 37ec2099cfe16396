// Checks for false alarms: correct kernels pass the default criterion on random problems.
//
// Problem i is drawn from the seed FLASHBENCH_RANDOM_SEED + i (1 unless set), for i below
// FLASHBENCH_RANDOM_PROBLEMS (1,000 unless set): a failure names its seed, and a run with that seed
// and a count of 1 repeats it alone.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "case/case_run.h"
#include "case/choose.h"
#include "mutants/mutant_provider.h"
#include "plan/draw.h"
#include "plan/random_cases.h"

namespace flashbench {
namespace {

using verify::Defect;
using verify::Simulation;

uint64_t from_environment(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoull(text);
}

// Sums round toward zero only where tensor cores do so: for 16-bit inputs.
Simulation random_correct_kernel(Draw& draw, Dtype dtype) {
  Simulation kernel;
  kernel.key_tile = draw.one_of(std::array<int64_t, 5>{16, 32, 48, 64, 128});
  kernel.p_in_dtype = draw.chance(2);
  kernel.ds_of_rounded_p = kernel.p_in_dtype && draw.chance(2);
  kernel.truncate = dtype != Dtype::fp32 && !kernel.p_in_dtype && draw.chance(2);
  return kernel;
}

TEST(RandomProblems, CorrectKernelsNeverFail) {
  const uint64_t first_seed = from_environment("FLASHBENCH_RANDOM_SEED", 1);
  const uint64_t count = from_environment("FLASHBENCH_RANDOM_PROBLEMS", 1000);
  const auto device = make_host_device(2);
  CaseRunOptions options;
  options.time = false;
  for (uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    constexpr int64_t kLongest = 260;  // the simulated kernel is slow
    const Case item = random_case(seed, kLongest);
    Draw draw(~seed);  // independent of the problem's draws
    const MutantProvider simulated(random_correct_kernel(draw, item.problem.dtype));
    std::vector<const Provider*> providers = choose_providers({}, DeviceKind::cpu);
    providers.push_back(&simulated);
    for (const Record& record : run_case(item, providers, *device, nullptr, options)) {
      EXPECT_EQ(record.status, Status::ok) << "seed " << seed << ": " << item.key() << ": "
                                           << record.provider << ": " << record.reason;
    }
  }
}

}  // namespace
}  // namespace flashbench
