#include "sweep/journal.h"

#include "attention/error.h"
#include "files/checksum.h"
#include "fuzz/targets.h"
#include "report/json.h"

namespace flashbench::fuzz {

namespace {

constexpr std::string_view kChecksumKey = ",\"xxh3\":\"";

// The same with correct checksums on all lines, so that mutations get past them.
std::string sealed(std::string_view text) {
  std::string result;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    const std::string_view line = text.substr(begin, end - begin);
    const std::string_view fields = line.substr(0, line.rfind(kChecksumKey));
    result += fields;
    result += kChecksumKey;
    result += checksum_text(fields) + "\"}\n";
  }
  result += text.substr(begin);
  return result;
}

void read(std::string_view text) {
  try {
    const JournalContents contents = read_journal(text, "fuzz.journal");
    require(contents.whole_bytes <= text.size() && contents.lines > 0,
            "a journal was accepted that has no whole line");
    to_json(journal_result(contents));
  } catch (const FileError&) {
  }
}

}  // namespace

void journal(std::string_view bytes) {
  read(bytes);
  read(sealed(bytes));
}

}  // namespace flashbench::fuzz
