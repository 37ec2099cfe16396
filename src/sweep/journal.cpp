#include "sweep/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "attention/error.h"
#include "files/atomic_file.h"
#include "plan/json_differences.h"
#include "report/json.h"
#include "sweep/journal_line.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

bool is_at(const std::filesystem::path& path, int fd) {
  struct stat opened;
  struct stat there;
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &there) == 0 &&
         opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

// Opens a file for appending, with an exclusive lock.
int open_alone(const std::filesystem::path& path) {
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) throw_file_error(path, "write", errno);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      throw FileError(fmt::format("{}: another sweep is writing it", path.string()));
    }
    if (is_at(path, fd)) return fd;
    close(fd);  // another sweep has moved or removed it before it was locked
  }
}

Json header_fields(const JournalHeader& header) {
  return {{"journal", kJournalVersion},
          {"identity", header.identity},
          {"meta", header.meta},
          {"device", header.device},
          {"config", header.config}};
}

bool has_whole_line(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  return std::getline(file, line) && !file.eof();
}

}  // namespace

Journal Journal::start(const std::filesystem::path& path, const JournalHeader& header) {
  if (std::filesystem::exists(path)) {
    // Locked until it is moved: another sweep may be writing it, or about to move it, too.
    const Journal before(path, open_alone(path));
    const std::filesystem::path old = path.string() + ".old";
    if (std::rename(path.c_str(), old.c_str()) != 0) throw_file_error(path, "move aside", errno);
  }
  Journal journal(path, open_alone(path));
  journal.begin(header);
  return journal;
}

Journal Journal::resume(const std::filesystem::path& path, const JournalHeader& header) {
  Journal journal(path, open_alone(path));
  if (!has_whole_line(path)) {  // its writer was killed during the first line
    journal.begin(header);
    return journal;
  }
  journal.contents_ = read_journal(path);
  const JournalContents& contents = journal.contents_;
  if (contents.header.identity != header.identity) {
    throw BadInput(
        fmt::format("{}: this journal belongs to another sweep:{}", path.string(),
                    listed(json_differences(contents.header.identity, header.identity))));
  }
  journal.bytes_ = contents.whole_bytes;
  journal.next_sequence_ = contents.lines;
  if (ftruncate(journal.fd_, static_cast<off_t>(journal.bytes_)) != 0) {
    throw_file_error(path, "cut off the torn last line", errno);
  }
  return journal;
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      contents_(std::move(other.contents_)),
      next_sequence_(other.next_sequence_),
      bytes_(other.bytes_) {}

Journal::~Journal() {
  if (fd_ >= 0) close(fd_);
}

void Journal::begin(const JournalHeader& header) {
  if (ftruncate(fd_, 0) != 0) throw_file_error(path_, "cut off a torn line", errno);
  contents_.header = header;
  append_line(header_fields(header));
  sync_folder(path_.parent_path());
}

void Journal::append(const std::vector<Ceiling>& ceilings) {
  Json list = Json::array();
  for (const Ceiling& ceiling : ceilings) list.push_back(ceiling_to_json(ceiling));
  append_line({{"ceilings", std::move(list)}});
}

void Journal::append(const JournalEntry& entry) {
  Json list = Json::array();
  for (const Record& record : entry.records) {
    list.push_back(record_to_json(record, entry.records));
  }
  append_line({{"key", entry.key}, {"repetition", entry.repetition}, {"records", std::move(list)}});
}

void Journal::append_line(Json fields) {
  const std::string line = journal_line(next_sequence_, fields);
  try {
    write_all(fd_, line, path_);
    if (fdatasync(fd_) != 0) throw_file_error(path_, "sync", errno);
  } catch (const FileError&) {
    // Without the partial line, the rest can be resumed.
    if (ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
      throw_file_error(path_, "cut off half a line", errno);
    throw;
  }
  bytes_ += line.size();
  ++next_sequence_;
}

void Journal::remove() {
  std::filesystem::remove(path_);
}

}  // namespace flashbench
