// Calls into a plugin, after which the process is as it was before.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "attention/exit_codes.h"
#include "flashbench/plugin.h"
#include "host/float_modes.h"
#include "host/fork_watch.h"
#include "host/resource_limits.h"

namespace flashbench {

// Surrounds a call of a plugin's `function`, a literal, or its loading, when there is no table.
class PluginCall {
 public:
  PluginCall(const flashbench_plugin* plugin, const char* function)
      : plugin_(plugin), function_(function) {
    watch_forks();
  }
  ~PluginCall() {
    if (is_forked_child()) end_forked_child(plugin_, function_);
  }
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;

 private:
  const flashbench_plugin* plugin_;
  const char* function_;
  KeptFloatModes modes_;
};

// Puts the process's limits back after a call, or ends the process, in which nothing of others
// might have room: its parent knows which plugin was at work.
class KeptLimits {
 public:
  KeptLimits() { remember_limits(); }
  ~KeptLimits() {
    if (restore_limits()) return;
    std::fputs(
        "the plugin lowered a limit of its process (setrlimit) that may not be raised again\n",
        stderr);
    std::_Exit(exit_codes::kCaseFailed);
  }
  KeptLimits(const KeptLimits&) = delete;
  KeptLimits& operator=(const KeptLimits&) = delete;
};

// Without a look at the limits, whose 16 system calls would be in the time.
template <typename Function, typename... Arguments>
auto call_plugin_timed(const flashbench_plugin& plugin, const char* name, Function function,
                       Arguments... arguments) {
  const PluginCall call(&plugin, name);
  return function(arguments...);
}

template <typename Function, typename... Arguments>
auto call_plugin(const flashbench_plugin& plugin, const char* name, Function function,
                 Arguments... arguments) {
  const KeptLimits limits;
  return call_plugin_timed(plugin, name, function, arguments...);
}

// Throws if a child process of the plugin has come back from a call.
inline void require_no_returned_child(const flashbench_plugin& plugin) {
  if (const char* function = take_returned_child(&plugin); function != nullptr) {
    throw std::runtime_error(
        fmt::format("a child process that it forked came back from {}: expected it to end with "
                    "_exit, also where exec fails",
                    function));
  }
}

}  // namespace flashbench
