#include "host/resource_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>

namespace flashbench {

namespace {

using Limits = std::array<rlimit, RLIM_NLIMITS>;
using Resource = decltype(RLIMIT_AS);

Limits limits_of_now() {
  Limits limits{};
  for (size_t i = 0; i < limits.size(); ++i) getrlimit(static_cast<Resource>(i), &limits[i]);
  return limits;
}

const Limits& remembered() {
  static const Limits limits = limits_of_now();
  return limits;
}

}  // namespace

void remember_limits() {
  remembered();
}

bool restore_limits() {
  const Limits now = limits_of_now();
  bool restored = true;
  for (size_t i = 0; i < now.size(); ++i) {
    const rlim_t before = remembered()[i].rlim_cur;
    if (now[i].rlim_cur >= before) continue;
    const rlimit higher{before, std::max(before, now[i].rlim_max)};
    if (setrlimit(static_cast<Resource>(i), &higher) != 0) restored = false;
  }
  return restored;
}

}  // namespace flashbench
