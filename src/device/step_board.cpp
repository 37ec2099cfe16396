#include "device/step_board.h"

#include <fmt/format.h>

#include <tuple>

#include "attention/enum_names.h"

namespace flashbench {

template <>
inline constexpr auto kNames<StepWork> =
    names_of<StepWork>({{StepWork::pull_keys, "pull of keys"},
                        {StepWork::pull_heads, "pull of heads"},
                        {StepWork::attend_queries, "attention of queries"},
                        {StepWork::attend_keys, "attention to keys"},
                        {StepWork::attend_heads, "attention of heads"},
                        {StepWork::merge_heads, "merge of heads"},
                        {StepWork::sum_gradients, "sum of the gradients of keys"}});

std::string RankStep::text() const {
  std::string rows;
  for (const RowRange& range : ranges) {
    if (range.empty()) continue;
    rows += fmt::format("{} {} to {}", rows.empty() ? "" : " and", range.first, range.end - 1);
  }
  return fmt::format("step {} of {} ({}{})", number, count, name(work), rows);
}

void StepBoard::begin(int rank, const RankStep& step) {
  Slot& own = slot(rank);
  own.number = static_cast<int16_t>(step.number);
  own.count = static_cast<int16_t>(step.count);
  own.work = step.work;
  for (size_t i = 0; i < 2; ++i) {
    own.bounds[2 * i] = step.ranges[i].first;
    own.bounds[2 * i + 1] = step.ranges[i].end;
  }
  own.since = Clock::now().time_since_epoch().count();
  own.state = State::at_work;
}

void StepBoard::wait_for_others(int rank) {
  slot(rank).since = Clock::now().time_since_epoch().count();
  slot(rank).state = State::waiting;
}

void StepBoard::end(int rank) {
  slot(rank).state = State::done;
}

std::optional<std::string> StepBoard::unfinished(Clock::time_point now) const {
  const Slot* found = nullptr;
  const auto order = [](const Slot& of) {
    return std::tuple(of.state == State::waiting, of.since.load());
  };
  for (const Slot& one : slots_) {
    if (one.state == State::done) continue;
    if (found == nullptr || order(one) < order(*found)) found = &one;
  }
  if (found == nullptr) return std::nullopt;
  const RankStep step{
      found->number,
      found->count,
      found->work,
      {RowRange{found->bounds[0], found->bounds[1]}, RowRange{found->bounds[2], found->bounds[3]}}};
  const Clock::duration passed = now - Clock::time_point(Clock::duration(found->since.load()));
  return fmt::format("rank {} {} {} in {:.1f} s", found - slots_.data(),
                     found->state == State::waiting ? "waited for the others in" : "did not finish",
                     step.text(), std::chrono::duration<double>(passed).count());
}

}  // namespace flashbench
