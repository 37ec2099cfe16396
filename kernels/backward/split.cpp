#include "kernels/backward/split.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "kernels/backward/backward.h"
#include "kernels/common/blocks.h"
#include "kernels/common/mask.h"
#include "kernels/common/requests.h"
#include "kernels/common/sections.cuh"

namespace flashbench::kernels::backward {
namespace {

constexpr int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Size of Q, dO and the accumulators of dQ of a group of query heads.
int64_t group_bytes(const Problem& p) {
  return p.heads_per_kv_head() * p.q_len * compiled_head_dim(p.head_dim) *
         (2 * element_size(p.dtype) + static_cast<int64_t>(sizeof(float)));
}

// Predictions, whose unit is a step: a block of queries of one head times a block of keys. The
// constants were fitted on an H200 (docs/kernels.md).

// To start and to end a thread block, and to add its sums to memory.
constexpr int kEnds = 2, kSums = 2;

// Of so many blocks of keys, whose thread blocks take so many steps each. Adding pieces up takes a
// step for each; all are taken to have the most, so that they are chosen only where they gain. Less
// than a wave is faster in parts, by measurement (docs/kernel-log.md).
LastWave last_wave_of(int64_t key_blocks, int64_t steps, int64_t slots) {
  const auto item = static_cast<int>(steps);
  if (key_blocks < slots) return {static_cast<int>(key_blocks), 1, item};
  return last_wave(
      key_blocks, static_cast<int>(slots), kMostPiecesAtOnce,
      {.item = item, .ends = kEnds + kMostPieces - 1, .least_share = kLeastPieceSteps});
}

// How many times as long steps take with so many bytes at a time, since they read again what the L2
// cache does not hold.
double time_with(double bytes) {
  constexpr double kCacheBytes = 40 << 20, kMissing = 0.3;
  return 1 + kMissing * std::max(0.0, 1 - kCacheBytes / bytes);
}

// Predicts the time of the pass for a number of parts. With different lengths, `at` has those that
// the requests have on average.
class Schedule {
 public:
  Schedule(const Launch& at, bool different_lengths, bool splits_last_wave)
      : masked_(at.problem.is_masked()),
        in_waves_(!masked_ && !different_lengths),
        splits_last_wave_(splits_last_wave),
        windowed_(at.problem.has_window()),
        group_(at.problem.heads_per_kv_head()),
        group_steps_(group_ * divide_up(at.problem.q_len, at.blocks.q)),
        kv_heads_(at.problem.batch * at.problem.kv_heads),
        key_blocks_(divide_up(at.problem.kv_len, at.blocks.kv)),
        slots_(static_cast<double>(slots(at))),
        group_bytes_(static_cast<double>(group_bytes(at.problem))) {
    int64_t steps = 0, most = 0;
    for_each_key_block(at.problem, at.blocks, [&](const RowRange& query_blocks) {
      steps += query_blocks.size();
      most = std::max(most, query_blocks.size());
    });
    steps_ = static_cast<double>(steps * group_ * kv_heads_);
    if (windowed_) group_steps_ = group_ * most;
  }

  int64_t most_parts() const {
    constexpr double kMostWaves = 64;
    const auto thread_blocks = static_cast<int64_t>(kMostWaves * slots_);
    return std::min(group_steps_, thread_blocks / (kv_heads_ * key_blocks_));
  }

  // With a mask, the steps of a query head have different costs. Parts must then be whole heads or
  // divide all heads alike. With a window, a block of keys is seen by a piece of a head alone.
  bool is_even(int64_t parts) const {
    if (windowed_) return group_ % parts == 0;
    return !masked_ || group_ % parts == 0 || parts % group_ == 0;
  }

  // That share: the sums of thread blocks are fp32.
  int64_t fewest_shared_parts() const {
    int64_t parts = 2;
    while (!is_even(parts)) ++parts;
    return parts;
  }

  double time(int64_t parts) const {
    if (parts == 1 && splits_last_wave_) return time_in_pieces();
    constexpr double kConversion = 3;  // to clear and convert the sums of a block of keys
    const double ends = kEnds + (parts > 1 ? kSums : 0);
    const auto key_blocks = static_cast<double>(kv_heads_ * key_blocks_);
    const double conversion = parts > 1 ? kConversion * key_blocks / slots_ : 0;
    const double thread_blocks = key_blocks * static_cast<double>(parts);
    const double longest = ends + static_cast<double>(divide_up(group_steps_, parts));
    const double waves = std::ceil(thread_blocks / slots_);
    // Thread blocks of equal length run in waves. Else the shorter ones come last and fill the
    // gaps, except for a fifth of the longest.
    if (in_waves_ || waves == 1) return waves * longest + conversion;
    const double load = (steps_ + ends * thread_blocks) / slots_;
    return std::max(longest, load * memory(parts) + 0.2 * longest) + conversion;
  }

 private:
  // Where the last wave is in pieces. The last one of a block of keys reads the sums of all, which
  // takes as long as a step each, or less.
  double time_in_pieces() const {
    const auto at_once = static_cast<int64_t>(slots_);
    const int64_t key_blocks = kv_heads_ * key_blocks_;
    const LastWave last = last_wave_of(key_blocks, group_steps_, at_once);
    const int pieces = last.pieces;
    const int64_t whole = key_blocks / at_once * (kEnds + group_steps_);
    const int64_t piece = kEnds + (pieces > 1 ? pieces : 0) + divide_up(group_steps_, pieces);
    return static_cast<double>(whole + divide_up(int64_t{last.items} * pieces, at_once) * piece);
  }

  // With a mask, thread blocks do not go through the queries in step: the L2 cache must hold the
  // whole heads that run at once. With a window, few queries see the keys that run at once.
  double memory(int64_t parts) const {
    if (windowed_ || !masked_) return 1;
    const double heads = std::clamp(slots_ / static_cast<double>(key_blocks_), 1.0,
                                    static_cast<double>(kv_heads_ * parts));
    const double bytes = heads * group_bytes_ / static_cast<double>(parts);
    return time_with(bytes);
  }

  bool masked_, in_waves_, splits_last_wave_, windowed_;
  int64_t group_, group_steps_, kv_heads_, key_blocks_;
  double slots_, group_bytes_;
  double steps_ = 0;
};

// Whether requests differ in length. The host knows their number, the longest, and all tokens.
bool lengths_differ(const Problem& p) {
  return p.lengths && p.batch * p.kv_len > p.kv_tokens();
}

// The slots of a GPU, of which the one that is free first takes the next thread block.
class Slots {
 public:
  explicit Slots(int64_t count) { free_.push({0, count}); }

  void take(int64_t thread_blocks, double length) {
    while (thread_blocks > 0) {
      const auto [time, count] = free_.top();
      free_.pop();
      const int64_t taken = std::min(count, thread_blocks);
      if (taken < count) free_.push({time, count - taken});
      free_.push({time + length, taken});
      end_ = std::max(end_, time + length);
      thread_blocks -= taken;
    }
  }

  // When the last thread block so far ends.
  double end() const { return end_; }

 private:
  using Free = std::pair<double, int64_t>;  // from when on, and how many slots
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free_;
  double end_ = 0;
};

// The number of heads of the last section, if all others have `each`: that of the launch that is
// predicted to be the shortest. `enough` heads have two blocks of keys for each slot. The longest
// thread blocks of a small section start when those before it end, and keep a few slots busy. In a
// larger one a slot takes a short one after a long one. But what more heads read does not fit the
// L2 cache.
int64_t heads_of_last_section(const Launch& at, int64_t parts, int64_t each, int64_t enough) {
  // Sections before these change the end little, if their number is even.
  constexpr int64_t kSimulatedSections = 8;
  const Problem& p = at.problem;
  const int64_t all_heads = p.batch * p.kv_heads * parts;
  const int64_t skipped = std::max<int64_t>(0, all_heads / each - kSimulatedSections) / 2 * 2;
  const int64_t heads = all_heads - skipped * each;
  const int64_t fewest = each + heads % each;
  if (fewest >= enough) return fewest;
  std::vector<double> steps;
  for_each_key_block(p, at.blocks, [&](const RowRange& query_blocks) {
    steps.push_back(static_cast<double>(query_blocks.size() * p.heads_per_kv_head()) /
                        static_cast<double>(parts) +
                    kEnds);
  });
  const auto take_section = [&](Slots& free, int64_t of_heads) {
    for (const double length : steps) free.take(of_heads, length);
  };
  const double head_bytes = static_cast<double>(group_bytes(p)) / static_cast<double>(parts);
  int64_t best = fewest;
  double least = std::numeric_limits<double>::infinity();
  Slots all_before(slots(at));
  int64_t last = heads;
  for (; last - each >= enough; last -= each) take_section(all_before, each);
  for (; last >= each; last -= each) {
    Slots all = all_before;
    take_section(all, last);
    take_section(all_before, each);
    const double share = static_cast<double>(last) / static_cast<double>(heads);
    const double longer = time_with(static_cast<double>(last) * head_bytes) - 1;
    const double time = all.end() * (1 + share * longer);
    if (time > least) continue;
    least = time;
    best = last;
  }
  return best;
}

}  // namespace

// Eight warps or more fill a multiprocessor.
int64_t slots(const Launch& at) {
  const int thread_blocks = std::max(1, at.device.threads) * std::max(1, 8 / at.blocks.warps);
  return std::max(1, thread_blocks / at.blocks.cluster);
}

bool may_split_last_wave(const Launch& at, int parts, const MainKernel& kernel) {
  const Problem& p = at.problem;
  return !p.is_masked() && !p.has_window() && kernel.splits_last_wave && parts == 1 &&
         at.key_sums == nullptr;
}

LastWave split_blocks(const Launch& at, int parts, const MainKernel& kernel) {
  const Problem& p = at.problem;
  if (p.lengths || !may_split_last_wave(at, parts, kernel)) return {};
  const int64_t key_blocks = p.batch * p.kv_heads * divide_up(p.kv_len, at.blocks.kv);
  const int64_t steps = p.heads_per_kv_head() * divide_up(p.q_len, at.blocks.q);
  const LastWave last = last_wave_of(key_blocks, steps, slots(at));
  return last.pieces > 1 ? last : LastWave{};
}

void for_each_key_block(const Problem& p, const BlockSizes& blocks,
                        const std::function<void(const RowRange& query_blocks)>& visit) {
  const int64_t key_end = p.seen_keys().end;
  for (int64_t key = 0; key < key_end; key += blocks.kv) {
    const int64_t last_key = std::min(key + blocks.kv, key_end) - 1;
    const int64_t first = p.queries_that_see(key).first / blocks.q;
    const int64_t end = divide_up(p.queries_that_see(last_key).end, blocks.q);
    visit({first, std::max(first, end)});
  }
}

bool rotates(const Launch& at, int64_t parts) {
  const Problem& p = at.problem;
  if (p.is_masked() || is_by_request(p)) return false;
  const int64_t key_blocks = divide_up(p.kv_len, at.blocks.kv);
  return key_blocks <= divide_up(p.q_len, at.blocks.q) &&
         p.batch * p.kv_heads * parts * key_blocks <= slots(at);
}

int choose_parts(const Launch& at, const MainKernel& kernel) {
  const Problem average = average_request(at.problem);
  const bool splits_blocks = !at.problem.lengths && may_split_last_wave(at, 1, kernel);
  const Schedule schedule({average, at.device, at.blocks}, lengths_differ(at.problem),
                          splits_blocks);
  constexpr double kLeastGain = 1.03;  // smallest gain that is worth the workspace
  int64_t chosen = at.fp32_outputs.of_keys ? schedule.fewest_shared_parts() : 1;
  double least = schedule.time(chosen) / kLeastGain;
  for (int64_t parts = chosen + 1; parts <= schedule.most_parts(); ++parts) {
    if (!schedule.is_even(parts)) continue;
    const double time = schedule.time(parts);
    if (time >= least) continue;
    least = time;
    chosen = parts;
  }
  return static_cast<int>(chosen);
}

// With a causal mask the first keys take the most work and should not come last: the first keys of
// all heads of a section come first. The data that a section reads and adds to fits the L2 cache,
// unless a larger section still runs all at once. The last section may be larger, see
// heads_of_last_section.
//
// If thread blocks go backwards, those of one head that run at once form a chain, in which a delay
// of one delays all behind it. So few of a head should run at once: as few as memory is fast enough
// for, since only they share what they read and add to. Without a mask they are all equally long,
// and what some fall behind they never make up for: more of a head run at once, so that the L2
// cache holds what lies between the first and the last.
//
// Where thread blocks go backwards, and for requests of equal length, sections have about the same
// size. The last one is no tail: it has as many heads as the others, or two blocks of keys for each
// slot.
//
// Where requests differ in length, the longest thread blocks are several times as long as the
// average. The last section then has four blocks of keys for each slot, whatever the L2 cache
// holds.
Sections sections(const Launch& at, int64_t parts, bool backwards) {
  const bool by_request = is_by_request(at.problem);
  const Problem p = by_request ? all_requests_as_one(at.problem) : at.problem;
  const int64_t heads = p.batch * p.kv_heads * parts;
  const auto of_size = [&](int64_t each, int64_t in_last) {
    return Sections{static_cast<int>(each), static_cast<int>((heads - in_last) / each)};
  };
  if (p.mask == Mask::none && !backwards) return of_size(1, 1);
  constexpr int64_t kSectionBytes = int64_t{32} << 20;
  const int64_t key_blocks = divide_up(p.kv_len, at.blocks.kv);
  const int64_t at_once = slots(at) / key_blocks;
  // By measurement: with a mask, 4 of a head at head_dim 64, 16 at 256.
  const int64_t columns = p.is_masked() ? 16 : 8;
  const int64_t few_at_once = backwards ? slots(at) * columns / compiled_head_dim(p.head_dim) : 1;
  const int64_t most = std::clamp<int64_t>(
      std::max({kSectionBytes * parts / group_bytes(p), at_once, few_at_once}), 1, heads);
  const int64_t least = p.is_masked() ? divide_up(2 * slots(at), key_blocks) : 1;
  if (backwards || (by_request && !lengths_differ(at.problem))) {
    return of_size(heads_of_section(heads, divide_up(heads, most), least), 1);
  }
  if (by_request) return of_size(most, std::min(heads, divide_up(4 * slots(at), key_blocks)));
  return of_size(most, heads_of_last_section(at, parts, most, std::min(heads, least)));
}

}  // namespace flashbench::kernels::backward
