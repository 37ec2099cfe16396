// What this binary was built from and how; recorded with every result.
#pragma once

#include <string>

namespace flashbench {

struct BuildInfo {
  std::string version;     // e.g. "0.1.0"
  std::string git_commit;  // full hash; empty if built outside a git checkout
  bool git_dirty = false;  // what the binary is made of differs from that commit
  std::string compiler;    // e.g. "GNU 12.2.0"
  std::string build_type;  // e.g. "Release"
  std::string flags;       // of the C++ compiler, e.g. "-O3 -DNDEBUG"
  std::string sanitizers;  // e.g. "address,undefined"; empty for none

  // For people, e.g. "flashbench 0.1.0 (commit 1a2b3c4d5e6f, modified; GNU 12.2.0, Release)".
  std::string text() const;
};

const BuildInfo& build_info();

}  // namespace flashbench
