#include "attention/error.h"
#include "compare/compare.h"
#include "compare/present.h"
#include "fuzz/targets.h"
#include "report/json.h"

namespace flashbench::fuzz {

void baseline(std::string_view bytes) {
  try {
    const SweepResult result = result_from_json(bytes, "fuzz.json");
    const Comparison comparison = compare(result, result, {});
    require(comparison.count(Change::slower) + comparison.count(Change::faster) +
                    comparison.count(Change::newly_wrong) ==
                0,
            "a result is another than itself");
    to_json(comparison);
    to_markdown(comparison);
    to_table(comparison);
  } catch (const FileError&) {
  } catch (const BaselineError&) {
  }
}

}  // namespace flashbench::fuzz
