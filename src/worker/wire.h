// The messages between a sweep and its worker, as JSON texts.
//
//   request                                    answer
//   {"do": "open", device, threads, providers, plugins, program}
//                                              {device, providers}   once, first
//   {"do": "load", plugin}                     {}                    for each plugin, then
//   {"do": "ceilings", measure}                {ceilings}
//   {"do": "case", case, providers, options}   {records}
//   {"do": "describe", provider}               {text}
//   {"do": "counters"}                         {counters}            whether they can be read
//   {"do": "count", case, providers, options}  {counts}              a report for each provider
//
// Any answer may instead be {"error": {kind, message}}.
#pragma once

#include <nlohmann/json.hpp>

#include <exception>
#include <string>

#include "case/case_run.h"
#include "worker/runner.h"

namespace flashbench::wire {

using Json = nlohmann::ordered_json;

Json to_json(const MeasureOptions&);
MeasureOptions measure_options(const Json&);

Json to_json(const CaseRunOptions&);
CaseRunOptions case_run_options(const Json&);

Json to_json(const RunnerOptions&);
RunnerOptions runner_options(const Json&);

Json to_json(const PluginFile&);
PluginFile plugin_file(const Json&);

// Converts an exception to an answer, and throws it again on the other side with the same type:
// NoDevice, BadInput, FileError, or else std::runtime_error.
Json error_answer(const std::exception&);
void throw_if_error(const Json& answer);

}  // namespace flashbench::wire
