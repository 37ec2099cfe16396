#include "measure/options.h"

namespace flashbench {

std::string_view name(CacheState cache) {
  return cache == CacheState::warm ? "warm" : "cold";
}

std::string_view name(CounterMode mode) {
  switch (mode) {
    case CounterMode::automatic:
      return "auto";
    case CounterMode::on:
      return "on";
    case CounterMode::off:
      return "off";
  }
  return "?";
}

}  // namespace flashbench
