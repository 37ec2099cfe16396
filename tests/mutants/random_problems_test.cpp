// No false alarm: correct kernels pass the default criterion on problems drawn at random.
//
// Problem i is drawn from the seed FLASHBENCH_RANDOM_SEED + i (1 unless set), for i below
// FLASHBENCH_RANDOM_PROBLEMS (1,000 unless set): a failure names its seed, and that seed with a
// count of 1 runs it alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "mutants/mutant_provider.h"
#include "sweep/case_run.h"
#include "sweep/choose.h"

namespace flashbench {
namespace {

using verify::Defect;
using verify::Simulation;

uint64_t from_environment(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::stoull(text);
}

// Draws by remainders, because the standard's distributions differ between libraries.
class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int64_t one_in) { return integer(1, one_in) == 1; }

  template <typename Values>
  auto one_of(const Values& values) {
    return values[static_cast<size_t>(integer(0, static_cast<int64_t>(std::size(values)) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

// Mostly short, at times one key or around a tile's edge.
int64_t length(Draw& draw) {
  if (draw.chance(8)) return 1;
  if (draw.chance(4)) return 64 * draw.integer(1, 4) + draw.integer(-1, 1);
  return draw.integer(1, draw.chance(4) ? 400 : 100);
}

Case random_case(Draw& draw) {
  Case item;
  Problem& p = item.problem;
  p.pass = draw.one_of(kPasses);
  p.dtype = draw.one_of(kDtypes);
  p.mask = draw.one_of(kMasks);
  p.layout = draw.one_of(kLayouts);
  p.batch = draw.integer(1, 2);
  p.kv_heads = draw.integer(1, 2);
  p.q_heads = p.kv_heads * draw.integer(1, 3);
  p.q_len = length(draw);
  p.kv_len = length(draw);
  p.head_dim = kHeadDimStep * draw.integer(1, draw.chance(8) ? kMaxHeadDim / kHeadDimStep : 16);
  if (draw.chance(3)) p.scale = static_cast<double>(draw.integer(-400, 400)) / 100;
  item.inputs.distribution =
      draw.one_of(std::array{Distribution::normal, Distribution::uniform, Distribution::outliers});
  item.inputs.seed = static_cast<uint64_t>(draw.integer(0, 1 << 30));
  return item;
}

// Products are summed rounding toward zero only where tensor cores do so: for 16-bit inputs.
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
    Draw draw(seed);
    const Case item = random_case(draw);
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
