// The value of the axis `lengths`: an object that says in one of several ways how long the requests
// of a batch are.
//
//   {"list": [[q_len, kv_len], ...]}
//   {"batch_spec": "2q2k_32q1s1k"}                              plan/batch_spec.h
//   {"pattern": "skew", "batch": 64, "kv_len": 4096}            plan/length_patterns.h
//   {"zipf": 4096, "batch": 64}                                 the longest, plan/length_patterns.h
//   {"quantiles": "azure23_conv", "batch": 64}                  plan/length_quantiles.h
//   {"file": "lengths.csv"}                                     lines q_len,kv_len under that
//   header
//
// The three that follow a rule give kv_len; every request has `q_len` queries, or as many as keys
// without it. `seed` (1 unless given) is that of what is drawn. `zero_fraction` of the requests, at
// random, have no keys. `sort` orders them by keys: shortest_first or longest_first.
#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

#include "attention/lengths.h"
#include "plan/strict_json.h"

namespace flashbench {

// Few enough that the text of their lengths fits a result.
inline constexpr int64_t kMostRequests = 1 << 15;
inline constexpr int64_t kLongestRequest = 1 << 24;
// A draw takes as many steps.
inline constexpr int64_t kLongestZipf = 1 << 20;

// Throws std::invalid_argument, with the place in the object, what was expected and what was found;
// FileError if a file cannot be read.
std::shared_ptr<const Lengths> read_lengths(const StrictJson&);

// Lengths of these requests. Throws std::invalid_argument if there are none or too many of them, or
// no query.
std::shared_ptr<const Lengths> make_lengths(const std::vector<RequestLengths>& requests);

// What the config's schema says of the object.
nlohmann::ordered_json lengths_schema();

// The object that an option gives: a batch spec, or JSON. Throws std::invalid_argument.
nlohmann::ordered_json lengths_of_option(const std::string& text);

}  // namespace flashbench
