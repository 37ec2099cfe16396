#include "compare/until_conclusive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sample_sweep.h"

namespace flashbench {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Times of_repetitions(size_t count) {
  return {.processes = std::vector<int>(count, 20)};
}

// All rows of the second side are like the first's, except row 4, which stays inconclusive.
SweepResult with_one_doubtful_row(size_t repetitions) {
  SweepResult now = nine_rows(of_repetitions(repetitions), 2);
  std::mt19937 random(3);
  Times doubtful = of_repetitions(repetitions);
  doubtful.process_noise = 0.2;
  now.records[4] = timed_record("tiled", 64 * 5, doubtful, random);
  return now;
}

TEST(UntilConclusive, AsksForUndecidedCasesAndLooksWhereTheirRepetitionsHaveDoubled) {
  const SweepResult base = nine_rows(of_repetitions(3), 1);
  const std::string key = base.records[4].item.key();
  double time = 0;
  UntilConclusive once_more(base, for_each_look({}), 100, [&] { return time; });
  EXPECT_THAT(once_more(with_one_doubtful_row(3)), ElementsAre(key));
  // Decided results are not checked before there are six repetitions.
  EXPECT_THAT(once_more(nine_rows(of_repetitions(4), 2)), ElementsAre(key));
  EXPECT_THAT(once_more(nine_rows(of_repetitions(5), 2)), ElementsAre(key));
  EXPECT_THAT(once_more(nine_rows(of_repetitions(6), 2)), IsEmpty());
}

TEST(UntilConclusive, EndsWhenTheTimeIsUp) {
  const SweepResult base = nine_rows(of_repetitions(3), 1);
  double time = 50;
  UntilConclusive once_more(base, for_each_look({}), 10, [&] { return time; });
  EXPECT_EQ(once_more(with_one_doubtful_row(3)).size(), 1u);
  time = 60;
  EXPECT_THAT(once_more(with_one_doubtful_row(4)), IsEmpty());
  UntilConclusive never(base, for_each_look({}), 0, [&] { return time; });
  EXPECT_THAT(never(with_one_doubtful_row(3)), IsEmpty());
}

TEST(UntilConclusive, LeavesTheLastLookToItsCaller) {
  const SweepResult base = nine_rows(of_repetitions(3), 1);
  UntilConclusive once_more(base, for_each_look({}), 100, [] { return 0; });
  size_t repetitions = 3;
  while (!once_more(with_one_doubtful_row(repetitions)).empty()) ++repetitions;
  EXPECT_EQ(repetitions, 3u * 16);  // looks at 3, 6, 12, 24; the fifth is of 48
}

TEST(UntilConclusive, EachLookHasItsPartOfTheSignificance) {
  EXPECT_DOUBLE_EQ(for_each_look({}).significance * kMostLooks, CompareOptions().significance);
}

}  // namespace
}  // namespace flashbench
