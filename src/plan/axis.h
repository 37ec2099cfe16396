// The table of axes: what a case is made of. Configs, their schema, filters, the options of `run`,
// results, CSV columns, keys, the command that repeats a row, random cases and the requests to
// other programs follow from it.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "plan/config.h"
#include "plan/draw.h"
#include "plan/strict_json.h"

namespace flashbench {

struct Axis {
  using Json = nlohmann::ordered_json;

  enum class Role {
    required,   // a config must say it, or what else determines it
    defaulted,  // has the model's default (Case, Problem, InputSpec) where a config does not say it
    optional,   // the same; where it has its default, keys, results and commands leave it out
    shorthand,  // sets other axes of a config; a case does not have it
  };

  // What its values are.
  using Names = std::vector<std::string>;
  struct Integers {
    uint64_t least, most, step = 1;
  };
  struct Reals {
    double least, most;
  };
  // An object, which takes several numbers to say. In keys, filters and columns it is a short text.
  struct Objects {
    Json schema;                              // of a value, as in the schema of configs
    Json example;                             // a value as `get` gives it
    std::string (*text)(const Case&);         // empty: the case has none
    std::string (*argument)(const Case&);     // of the option of `run`
    Json (*from_option)(const std::string&);  // its inverse; throws std::invalid_argument
  };
  using Values = std::variant<Names, Integers, Reals, Objects>;

  std::string_view name;   // in configs, filters and results; with - for _, an option of `run`
  std::string_view title;  // in the schema and in the help of `run`
  Role role;
  Values values;
  bool of_problem;  // rather than of the inputs: what a provider is told

  // The value in a case; null where there is none.
  std::function<Json(const Case&)> get;
  // Throws std::invalid_argument with what was expected.
  std::function<void(Case&, const StrictJson&)> set;
  // In a random case whose lengths are at most `longest`; may be empty.
  std::function<void(Case&, Draw&, int64_t longest)> draw{};

  // Which other axes it sets, and why the two cannot be combined.
  std::vector<std::string_view> sets{};
  std::string_view why{};

  std::string option() const;  // of `run`: "--head-dim"

  // Whether keys and headings name it beside its value, which other axes may have too.
  bool names_itself = false;
  bool is_named() const { return names_itself || names() == nullptr; }

  // Its names, or what it has instead of numbers; null for another kind.
  const Names* names() const { return std::get_if<Names>(&values); }
  const Objects* objects() const { return std::get_if<Objects>(&values); }

  // The value as keys, filters and columns have it; "default" for null.
  std::string text(const Case&) const;

  // The value as the option of `run` takes it.
  std::string argument(const Case&) const;

  // Whether keys, results and commands mention the axis.
  bool is_mentioned(const Case&) const;
};

// In the order in which results and commands name them.
const std::vector<Axis>& axes();

// The axis with this name. Throws std::out_of_range.
const Axis& axis(std::string_view name);

// All axes: those named in `first`, in that order, then the others.
std::vector<const Axis*> axes_in_order(const std::vector<std::string_view>& first);

// Names of axes, and their values.
using AxisValues = std::map<std::string_view, Axis::Json>;

class BadAxis : public std::invalid_argument {
 public:
  BadAxis(const Axis& axis, const std::string& what)
      : std::invalid_argument(what), name(axis.name) {}
  std::string_view name;
};

// The case that has these values; the rest has its default. Throws BadAxis.
Case make_case(const AxisValues&);

}  // namespace flashbench
