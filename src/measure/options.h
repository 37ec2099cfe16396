// How a case is measured.
#pragma once

#include "attention/enum_names.h"

namespace flashbench {

enum class CacheState { warm, cold };
template <>
inline constexpr auto kNames<CacheState> = names_of<CacheState>({{CacheState::warm, "warm"},
                                                                 {CacheState::cold, "cold"}});

// Hardware counters: where they can be read; or else nothing is run, and in detail; or not at all.
enum class CounterMode { automatic, on, off };
template <>
inline constexpr auto kNames<CounterMode> = names_of<CounterMode>({{CounterMode::automatic, "auto"},
                                                                   {CounterMode::on, "on"},
                                                                   {CounterMode::off, "off"}});

// How long and how often to measure. The rules: docs/measuring.md.
struct MeasureOptions {
  CacheState cache = CacheState::warm;
  int warmup_runs = 2;          // at least
  double warmup_seconds = 0.1;  // at least, per provider
  int min_samples = 10;
  int max_samples = 200;
  double target_ci_width = 0.02;  // stop when the median's 95% interval is this narrow, relatively
  double max_seconds = 5;         // cap on the measuring of one provider on one case
  int repetitions = 1;            // of every case, each in a process of its own
  CounterMode counters = CounterMode::automatic;
  double energy_seconds = 0.2;  // runs on end whose energy is measured, at least; 0: it is not
};

}  // namespace flashbench
