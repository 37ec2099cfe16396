// A sweep's journal: what has been measured so far, written as it comes, so that nothing that
// happens to the sweep loses more than the case at work.
//
// It is a text of JSON lines, appended one at a time and synced. Each line is an object with the
// sequence number "seq" first and, last, "xxh3": the XXH3-64 of all bytes of the line before it.
//
//   {"seq":0,"journal":1,"identity":{...},"meta":{...},"device":{...},"config":{...},"xxh3":"..."}
//   {"seq":1,"ceilings":[...],"xxh3":"..."}
//   {"seq":2,"key":"forward/fp32/...","repetition":0,"records":[...],"xxh3":"..."}
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/ceilings.h"
#include "report/record.h"

namespace flashbench {

inline constexpr int kJournalVersion = 1;

// What the first line says.
struct JournalHeader {
  // Everything that a resumed sweep must have in common with the one that was interrupted.
  nlohmann::ordered_json identity;
  nlohmann::ordered_json meta, device, config;  // as in a result file
};

// One case that was done, with a record for each provider.
struct JournalEntry {
  std::string key;
  int repetition = 0;
  std::vector<Record> records;
};

struct JournalContents {
  JournalHeader header;
  std::optional<std::vector<Ceiling>> ceilings;
  std::vector<JournalEntry> entries;  // in the order written; a later one replaces an earlier
  int lines = 0;
  size_t whole_bytes = 0;  // without a last line that has no end: what was torn
};

// Throws FileError, naming the source and the line, for anything but whole lines in their sequence,
// with right checksums, and perhaps a torn one after them.
JournalContents read_journal(std::string_view text, const std::string& source);
JournalContents read_journal(const std::filesystem::path&);

// What a journal has measured, as a result: the latest records of each case, merged over
// repetitions.
SweepResult journal_result(const JournalContents&);

// A journal that is being written. While it exists, no other process can write it.
class Journal {
 public:
  // Starts a new one; a journal that is there already is moved to PATH.old. Throws FileError.
  static Journal start(const std::filesystem::path&, const JournalHeader&);

  // Goes on with the one that is there, its torn last line cut off; begins it if that is all there
  // is. Throws FileError if it is
  // damaged or cannot be written, BadInput if its identity is another, saying what differs.
  static Journal resume(const std::filesystem::path&, const JournalHeader&);

  Journal(Journal&&) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal();

  const std::filesystem::path& path() const { return path_; }
  const JournalContents& contents() const { return contents_; }  // as it was when it was opened

  // Returns when the line is on the disk. Throws FileError; what was written before stays.
  void append(const std::vector<Ceiling>&);
  void append(const JournalEntry&);

  // Deletes the file: all of it is in the result now.
  void remove();

 private:
  Journal(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  void begin(const JournalHeader&);
  void append_line(nlohmann::ordered_json fields);

  std::filesystem::path path_;
  int fd_ = -1;
  JournalContents contents_;
  int next_sequence_ = 0;
  size_t bytes_ = 0;
};

}  // namespace flashbench
