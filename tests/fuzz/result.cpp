#include "attention/error.h"
#include "fuzz/targets.h"
#include "report/json.h"

namespace flashbench::fuzz {

void result(std::string_view bytes) {
  std::string text;
  try {
    text = to_json(result_from_json(bytes, "fuzz.json"));
  } catch (const FileError&) {
    return;
  }
  require(to_json(result_from_json(text, "written.json")) == text,
          "a result that was read and written is another when read again");
}

}  // namespace flashbench::fuzz
