// A sweep's journal: all results so far, written as they come, so that whatever happens to the
// sweep, at most the current case is lost.
//
// It consists of JSON lines, which are appended one at a time and synced. Each line is an object
// that begins with the sequence number "seq" and ends with "xxh3", the XXH3-64 of all preceding
// bytes of the line.
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

// The content of the first line.
struct JournalHeader {
  // Everything that must be the same in a resumed sweep as in the interrupted one.
  nlohmann::ordered_json identity;
  nlohmann::ordered_json meta, device, config;  // as in a result file
};

// A completed case, with a record for each provider.
struct JournalEntry {
  std::string key;
  int repetition = 0;
  std::vector<Record> records;
};

struct JournalContents {
  JournalHeader header;
  std::optional<std::vector<Ceiling>> ceilings;
  std::vector<JournalEntry> entries;  // in the order written; later ones replace earlier ones
  int lines = 0;
  size_t whole_bytes = 0;  // without a torn last line
};

// Throws FileError, naming the source and the line, unless the journal consists of whole lines in
// sequence with correct checksums, and possibly a torn last one.
JournalContents read_journal(std::string_view text, const std::string& source);
JournalContents read_journal(const std::filesystem::path&);

// The journal's content as a result: the latest records of each case, merged over repetitions. It
// need not have all rows of the sweep.
SweepResult journal_result(const JournalContents&);

// A journal open for writing. No other process can write it at the same time.
class Journal {
 public:
  // Starts a new journal, and moves an existing one to PATH.old. Throws FileError.
  static Journal start(const std::filesystem::path&, const JournalHeader&);

  // Continues an existing journal after cutting off a torn last line, or begins it if nothing else
  // is there. Throws FileError if it is damaged or cannot be written. Throws BadInput, naming the
  // differences, if its identity differs.
  static Journal resume(const std::filesystem::path&, const JournalHeader&);

  Journal(Journal&&) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal();

  const std::filesystem::path& path() const { return path_; }
  const JournalContents& contents() const { return contents_; }  // as of when it was opened

  // Returns when the line is on the disk. Throws FileError; earlier lines are kept.
  void append(const std::vector<Ceiling>&);
  void append(const JournalEntry&);

  // Deletes the file, whose content is now in the result.
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
