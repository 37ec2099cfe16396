#include "sweep/journal.h"

#include <gtest/gtest.h>

#include <barrier>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>
#include <vector>

#include "attention/error.h"
#include "report/json.h"
#include "sweep/journal_line.h"
#include "tests/report/sample_result.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

class JournalFile : public testing::Test {
 protected:
  static JournalHeader header(int threads = 2) {
    return {{{"threads", threads}}, {{"argv", {"x"}}}, {{"name", "cpu"}}, {{"name", "some"}}};
  }

  static JournalEntry entry(int64_t batch) {
    Record record = sample_record("tiled", 0.5);
    record.item.problem.batch = batch;
    return {record.item.key(), 0, {record}};
  }

  // A journal with a header, ceilings and `entries` entries.
  std::string written(int entries) {
    Journal journal = Journal::start(path_, header());
    journal.append(sample_result().ceilings);
    for (int i = 1; i <= entries; ++i) journal.append(entry(i));
    return text();
  }

  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path_, std::ios::binary).rdbuf();
    return out.str();
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  static std::string error_of(const std::string& text) {
    try {
      read_journal(text, "x.journal");
    } catch (const FileError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "some.journal";
};

TEST_F(JournalFile, WhatIsAppendedIsReadBack) {
  written(2);
  const JournalContents contents = read_journal(path_);
  EXPECT_EQ(contents.header.identity, header().identity);
  EXPECT_EQ(contents.header.config, header().config);
  ASSERT_TRUE(contents.ceilings);
  ASSERT_EQ(contents.entries.size(), 2u);
  EXPECT_EQ(contents.entries[1].key, entry(2).key);
  EXPECT_EQ(contents.entries[1].records[0].measurement->seconds,
            entry(2).records[0].measurement->seconds);
  EXPECT_EQ(contents.whole_bytes, text().size());
  EXPECT_EQ(journal_result(contents).records.size(), 2u);
}

TEST_F(JournalFile, CutAnywhereItHasTheWholeLinesBefore) {
  const std::string whole = written(2);
  for (size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    const std::string_view cut = std::string_view(whole).substr(0, bytes);
    const auto lines = std::count(cut.begin(), cut.end(), '\n');
    if (lines == 0) {
      EXPECT_THROW(read_journal(cut, "x"), FileError);
      continue;
    }
    EXPECT_EQ(read_journal(cut, "x").lines, lines);
  }
}

TEST_F(JournalFile, EveryChangedByteIsFound) {
  const std::string whole = written(1);
  for (size_t i = 0; i < whole.size(); ++i) {
    if (i + 1 == whole.size()) continue;  // the last line's end: torn, not damaged
    std::string damaged = whole;
    damaged[i] ^= 4;
    EXPECT_NE(error_of(damaged), "") << "byte " << i;
  }
}

TEST_F(JournalFile, DamageIsNamedWithItsLine) {
  std::string damaged = written(2);
  damaged[damaged.find("forward")] = 'F';
  EXPECT_NE(error_of(damaged).find("x.journal: line 3 is damaged: expected the checksum"),
            std::string::npos)
      << error_of(damaged);
  const std::string lost = journal_line(0, {{"journal", 1},
                                            {"identity", 1},
                                            {"meta", nlohmann::ordered_json::object()},
                                            {"device", 1},
                                            {"config", 1}}) +
                           journal_line(2, {{"ceilings", nlohmann::ordered_json::array()}});
  EXPECT_NE(error_of(lost).find("line 2 is damaged: expected sequence number 1, found 2"),
            std::string::npos)
      << error_of(lost);
  EXPECT_NE(error_of(journal_line(0, {{"journal", 9}})).find("expected journal version 1, found 9"),
            std::string::npos);
  EXPECT_NE(error_of("").find("it has no complete line"), std::string::npos);
}

TEST_F(JournalFile, DeepNestingIsRefused) {
  nlohmann::ordered_json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = nlohmann::ordered_json::array({std::move(deep)});
  EXPECT_NE(error_of(journal_line(0, {{"journal", std::move(deep)}})).find("line 1 is damaged"),
            std::string::npos);
}

TEST_F(JournalFile, ResumingCutsTheTornLineAndGoesOn) {
  const std::string whole = written(2);
  write(whole.substr(0, whole.size() - 10));
  {
    Journal journal = Journal::resume(path_, header());
    EXPECT_EQ(journal.contents().entries.size(), 1u);
    journal.append(entry(2));
  }
  EXPECT_EQ(text(), whole);
}

TEST_F(JournalFile, ResumingATornFirstLineBeginsAnew) {
  const std::string whole = written(0);
  for (const std::string& torn : {std::string(), whole.substr(0, 20)}) {
    write(torn);
    const Journal journal = Journal::resume(path_, header());
    EXPECT_EQ(read_journal(path_).lines, 1);
  }
}

TEST_F(JournalFile, ResumingAnotherSweepSaysWhatDiffers) {
  const std::string whole = written(1);
  try {
    Journal::resume(path_, header(3));
    FAIL() << "resumed";
  } catch (const BadInput& error) {
    EXPECT_NE(std::string(error.what()).find("/threads: 2 there, 3 now"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(text(), whole);
}

TEST_F(JournalFile, ADamagedJournalIsNotTouched) {
  std::string damaged = written(1);
  damaged[100] ^= 1;
  write(damaged);
  EXPECT_THROW(Journal::resume(path_, header()), FileError);
  EXPECT_EQ(text(), damaged);
}

TEST_F(JournalFile, StartingAnewKeepsTheOldOne) {
  const std::string whole = written(1);
  const Journal journal = Journal::start(path_, header());
  EXPECT_EQ(read_journal(path_).entries.size(), 0u);
  EXPECT_EQ(read_journal(std::filesystem::path(path_.string() + ".old")).whole_bytes, whole.size());
}

TEST_F(JournalFile, ASecondWriterIsRefused) {
  const Journal journal = Journal::start(path_, header());
  EXPECT_THROW(Journal::start(path_, header()), FileError);
  EXPECT_THROW(Journal::resume(path_, header()), FileError);
}

TEST_F(JournalFile, OfTwoThatStartAtOnceOneIsRefused) {
  written(0);
  for (int round = 0; round < 200; ++round) {
    std::barrier<> together(2);
    std::vector<std::optional<Journal>> started(2);
    std::vector<std::thread> sweeps;
    for (auto& journal : started) {
      sweeps.emplace_back([&] {
        together.arrive_and_wait();
        try {
          journal.emplace(Journal::start(path_, header()));
        } catch (const FileError&) {
        }
      });
    }
    for (std::thread& sweep : sweeps) sweep.join();
    ASSERT_NE(started[0].has_value(), started[1].has_value()) << "round " << round;
  }
}

}  // namespace
}  // namespace flashbench
