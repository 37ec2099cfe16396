#include "fuzz/targets.h"
#include "plan/config.h"

namespace flashbench::fuzz {

void filter(std::string_view bytes) {
  try {
    const CaseFilter filter(bytes);
    filter.keeps(Case{});
  } catch (const ConfigError&) {
  }
}

}  // namespace flashbench::fuzz
