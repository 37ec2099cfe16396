// The fuzz targets: every reader of external text or files. A target takes any bytes, lets through
// only the exceptions that the reader's header documents, and checks invariants of accepted input.
// Any other exception or crash is a finding.
#pragma once

#include <array>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace flashbench::fuzz {

// One for each file <name>.cpp beside this one, and for each folder corpus/<name>.
void baseline(std::string_view bytes);
void config(std::string_view bytes);
void filter(std::string_view bytes);
void gzip(std::string_view bytes);
void journal(std::string_view bytes);
void npy(std::string_view bytes);
void result(std::string_view bytes);
void set(std::string_view bytes);

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
};
inline constexpr std::array kTargets{Target{"baseline", baseline}, Target{"config", config},
                                     Target{"filter", filter},     Target{"gzip", gzip},
                                     Target{"journal", journal},   Target{"npy", npy},
                                     Target{"result", result},     Target{"set", set}};

// Prints targets in the names of tests.
inline std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << target.name;
}

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

}  // namespace flashbench::fuzz
