#include <fmt/format.h>

#include <stdexcept>

#include "attention/error.h"
#include "files/checksum.h"
#include "files/read_file.h"
#include "report/json.h"
#include "report/shard_part.h"
#include "sweep/journal.h"
#include "sweep/journal_line.h"
#include "sweep/merge.h"

namespace flashbench {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChecksumKey = ",\"xxh3\":\"";
constexpr size_t kChecksumDigits = 16;
constexpr std::string_view kLineEnd = "\"}";

// Parses a line after verifying its checksum.
Json checked_line(std::string_view line) {
  const size_t tail = kChecksumKey.size() + kChecksumDigits + kLineEnd.size();
  if (line.size() < tail + 2 ||
      line.substr(line.size() - tail, kChecksumKey.size()) != kChecksumKey ||
      !line.ends_with(kLineEnd)) {
    throw std::invalid_argument("it does not end with a checksum");
  }
  const std::string_view text = line.substr(0, line.size() - tail);
  const std::string_view found = line.substr(text.size() + kChecksumKey.size(), kChecksumDigits);
  if (found != checksum_text(text)) {
    throw std::invalid_argument(
        fmt::format("expected the checksum {}, found {}", checksum_text(text), found));
  }
  return parse_strictly(line);
}

JournalHeader header_from(const Json& json) {
  if (const auto& version = json.at("journal"); version != kJournalVersion) {
    throw std::invalid_argument(
        fmt::format("expected journal version {}, found {}", kJournalVersion, version.dump()));
  }
  static_cast<void>(shard_part(json.at("meta")));  // throws for what results cannot have
  return {json.at("identity"), json.at("meta"), json.at("device"), json.at("config")};
}

JournalEntry entry_from(const Json& json) {
  JournalEntry entry{json.at("key"), json.at("repetition"), {}};
  for (const Json& record : json.at("records")) {
    entry.records.push_back(record_from_json(record));
    if (entry.records.back().item.key() != entry.key) {
      throw std::invalid_argument(fmt::format("expected records of \"{}\", found one of \"{}\"",
                                              entry.key, entry.records.back().item.key()));
    }
  }
  return entry;
}

void read_line(std::string_view line, JournalContents& contents) {
  const Json json = checked_line(line);
  if (json.at("seq") != contents.lines) {
    throw std::invalid_argument(fmt::format("expected sequence number {}, found {}", contents.lines,
                                            json.at("seq").dump()));
  }
  if (contents.lines == 0) {
    contents.header = header_from(json);
  } else if (json.contains("ceilings")) {
    contents.ceilings.emplace();
    for (const Json& ceiling : json.at("ceilings")) {
      contents.ceilings->push_back(ceiling_from_json(ceiling));
    }
  } else {
    contents.entries.push_back(entry_from(json));
  }
}

}  // namespace

std::string journal_line(int sequence, const Json& fields) {
  Json json{{"seq", sequence}};
  json.update(fields);
  std::string line = json.dump();
  line.pop_back();  // the closing brace
  return fmt::format("{}{}{}{}\n", line, kChecksumKey, checksum_text(line), kLineEnd);
}

JournalContents read_journal(std::string_view text, const std::string& source) {
  JournalContents contents;
  while (true) {
    const size_t end = text.find('\n', contents.whole_bytes);
    if (end == std::string_view::npos) break;
    try {
      read_line(text.substr(contents.whole_bytes, end - contents.whole_bytes), contents);
    } catch (const std::exception& error) {
      throw FileError(
          fmt::format("{}: line {} is damaged: {}", source, contents.lines + 1, error.what()));
    }
    ++contents.lines;
    contents.whole_bytes = end + 1;
  }
  if (contents.lines == 0) {
    throw FileError(fmt::format("{}: not a flashbench journal: it has no complete line", source));
  }
  return contents;
}

JournalContents read_journal(const std::filesystem::path& path) {
  constexpr size_t kMaxJournalBytes = size_t{1} << 30;
  return read_journal(read_file(path, kMaxJournalBytes), path.string());
}

SweepResult journal_result(const JournalContents& contents) {
  SweepResult result;
  result.meta = contents.header.meta;
  result.meta.erase("sweep");  // whose rows may not all be there
  result.devices = Json::array({contents.header.device});
  result.config = contents.header.config;
  result.ceilings = contents.ceilings.value_or(std::vector<Ceiling>{});
  result.records = merged(contents.entries);
  return result;
}

}  // namespace flashbench
