#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "inputs/patterns.h"
#include "plan/axis.h"
#include "plan/batch_spec.h"
#include "plan/block_table.h"
#include "plan/lengths.h"

namespace flashbench {

namespace {

using Json = Axis::Json;
using Role = Axis::Role;
using DrawValue = std::function<void(Case&, Draw&, int64_t longest)>;

constexpr Axis::Integers kSizes{1, 1 << 20};
constexpr Axis::Integers kLengths{1, kLongestRequest};
constexpr Axis::Integers kWindows{0, kLengths.most};
constexpr Axis::Integers kPageSizes{1, 1 << 20};
constexpr Axis::Integers kHeadDims{kHeadDimStep, kMaxHeadDim, kHeadDimStep};

// ---- the member of a case that holds an axis

template <typename C, typename T>
auto& held(C& c, T Problem::*member) {
  return c.problem.*member;
}
template <typename C, typename T>
auto& held(C& c, T InputSpec::*member) {
  return c.inputs.*member;
}
template <typename C, typename T>
auto& held(C& c, T Case::*member) {
  return c.*member;
}

// ---- kinds of axes

template <typename T>
void read_number(T& value, const StrictJson& json) {
  value = json;
}
template <typename T>
void read_number(std::optional<T>& value, const StrictJson& json) {
  if (json.is_null()) {
    value.reset();
  } else {
    value = T{json};
  }
}

template <typename T>
Json number_json(const T& value) {
  return value;
}
template <typename T>
Json number_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// `values`: Integers or Reals. Without `draw`, a random case has the default.
template <typename Owner, typename T>
Axis number_axis(std::string_view name, std::string_view title, Role role, T Owner::*member,
                 Axis::Values values, DrawValue draw) {
  return {.name = name,
          .title = title,
          .role = role,
          .values = std::move(values),
          .of_problem = std::is_same_v<Owner, Problem>,
          .get = [member](const Case& c) { return number_json(held(c, member)); },
          .set = [member](Case& c, const StrictJson& json) { read_number(held(c, member), json); },
          .draw = std::move(draw)};
}

// Without `draw`, any of the values is drawn.
template <typename Owner, typename Enum, size_t N>
Axis named_axis(std::string_view name, std::string_view title, Role role, Enum Owner::*member,
                const std::array<Enum, N>& values, DrawValue draw = nullptr) {
  Axis::Names names;
  for (const Enum value : values) names.emplace_back(flashbench::name(value));
  if (!draw) {
    draw = [=](Case& c, Draw& from, int64_t) { held(c, member) = from.one_of(values); };
  }
  return {.name = name,
          .title = title,
          .role = role,
          .values = std::move(names),
          .of_problem = std::is_same_v<Owner, Problem>,
          .get = [member](const Case& c) { return flashbench::name(held(c, member)); },
          .set = [=](Case& c, const StrictJson& json) { held(c, member) = named<Enum>(json); },
          .draw = std::move(draw)};
}

Axis shorthand_axis(std::string_view name, std::string_view title, Axis::Integers values,
                    Json (*get)(const Case&), void (*set)(Case&, const StrictJson&),
                    std::vector<std::string_view> sets, std::string_view why) {
  return {.name = name,
          .title = title,
          .role = Role::shorthand,
          .values = values,
          .of_problem = true,
          .get = get,
          .set = set,
          .sets = std::move(sets),
          .why = why};
}

// ---- drawn at random

// Not e4m3, which few providers take: older seeds keep the dtype that they drew.
void draw_dtype(Case& c, Draw& draw, int64_t) {
  c.problem.dtype = draw.one_of(kUnscaledDtypes);
}

void draw_batch(Case& c, Draw& draw, int64_t) {
  c.problem.batch = draw.integer(1, 2);
}

void draw_heads(Case& c, Draw& draw, int64_t) {
  c.problem.kv_heads = draw.integer(1, 2);
  c.problem.q_heads = c.problem.kv_heads * draw.one_of(std::array{1, 2, 3, 8});
}

// Mostly short, at times one or around a tile's edge.
int64_t drawn_length(Draw& draw, int64_t longest) {
  if (draw.chance(8)) return 1;
  if (draw.chance(4)) {
    return std::min(longest, 64 * draw.integer(1, longest / 64) + draw.integer(-1, 1));
  }
  return draw.integer(1, draw.chance(4) ? longest : longest / 4);
}

template <int64_t Problem::*length>
void draw_length(Case& c, Draw& draw, int64_t longest) {
  c.problem.*length = drawn_length(draw, longest);
}

// Not ragged, which only lengths make a case: older seeds keep the layout that they drew.
void draw_layout(Case& c, Draw& draw, int64_t) {
  c.problem.layout = draw.one_of(kDenseLayouts);
}

// Of some problems: a few requests, at times one without queries or keys, padded or ragged.
void draw_lengths(Case& c, Draw& draw, int64_t longest) {
  if (!draw.chance(6)) return;
  std::vector<RequestLengths> requests(static_cast<size_t>(draw.integer(1, 5)));
  for (RequestLengths& request : requests) {
    request.q_len = draw.chance(8) ? 0 : drawn_length(draw, longest);
    request.kv_len = draw.chance(8) ? 0 : drawn_length(draw, longest);
  }
  requests.front().q_len = std::max<int64_t>(requests.front().q_len, 1);
  c.problem.set_lengths(std::make_shared<const Lengths>(requests));
  if (draw.chance(2)) c.problem.layout = Layout::ragged;
}

// Those that kernels are compiled for, and others, which they pad.
int64_t drawn_head_dim(Draw& draw) {
  if (draw.chance(4)) return draw.one_of(std::array{64, 128, 256});
  return kHeadDimStep * draw.integer(1, draw.chance(4) ? kMaxHeadDim / kHeadDimStep : 16);
}

void draw_head_dim(Case& c, Draw& draw, int64_t) {
  c.problem.head_dim = drawn_head_dim(draw);
}

void draw_head_dim_v(Case& c, Draw& draw, int64_t) {
  if (draw.chance(8)) c.problem.set_value_dim(drawn_head_dim(draw));
}

void draw_scale(Case& c, Draw& draw, int64_t) {
  if (draw.chance(3)) c.problem.scale = static_cast<double>(draw.integer(-400, 400)) / 100;
}

void draw_distribution(Case& c, Draw& draw, int64_t) {
  c.inputs.distribution =
      draw.one_of(std::array{Distribution::normal, Distribution::uniform, Distribution::outliers});
}

void draw_placement(Case& c, Draw& draw, int64_t) {
  if (draw.chance(4)) c.placement = draw.one_of(std::array{Placement::strided, Placement::offset});
}

// Few keys, around a tile's edge, any number, or more than there are.
int64_t draw_window(Draw& draw, int64_t longest) {
  if (draw.chance(4)) return draw.integer(0, 2);
  if (draw.chance(3)) return 64 * draw.integer(1, longest / 64) + draw.integer(-1, 1);
  return draw.integer(0, draw.chance(4) ? 2 * longest : longest / 4);
}

// Of some problems, since not all providers have windows: on one side, or on both.
void draw_windows(Case& c, Draw& draw, int64_t longest) {
  if (!draw.chance(6)) return;
  const int64_t sides = draw.integer(1, 3);
  if (sides != 1) c.problem.window_left = draw_window(draw, longest);
  if (sides != 2) c.problem.window_right = draw_window(draw, longest);
}

// Of some forward passes: a paged K/V cache, mostly with a page size that is in use.
void draw_pages(Case& c, Draw& draw, int64_t longest) {
  Problem& p = c.problem;
  if (p.pass == Pass::backward || !draw.chance(5)) return;
  p.page_size = draw.chance(4) ? draw.integer(1, 300)
                               : draw.one_of(std::array{1, 8, 16, 32, 48, 64, 128, 256});
  p.kv_layout = draw.one_of(kKvLayouts);
  p.page_order = draw.one_of(kPageOrders);
  if (draw.chance(4)) p.shared_prefix = draw.integer(1, longest / 2);
}

// Drawn with another axis.
void draw_nothing(Case&, Draw&, int64_t) {}

// ---- shorthands

int64_t divided(int64_t total, std::string_view divisor_name, int64_t divisor) {
  if (total % divisor == 0) return total / divisor;
  throw std::invalid_argument(
      fmt::format("expected a multiple of {} ({}), got {}", divisor_name, divisor, total));
}

Json get_seq(const Case& c) {
  return c.problem.q_len == c.problem.kv_len ? Json(c.problem.q_len) : Json();
}
void set_seq(Case& c, const StrictJson& json) {
  c.problem.q_len = c.problem.kv_len = json;
}

Json get_hidden(const Case& c) {
  return c.problem.q_heads * c.problem.head_dim;
}
void set_hidden(Case& c, const StrictJson& json) {
  c.problem.q_heads = divided(json, "head_dim", c.problem.head_dim);
}

Json get_total_tokens(const Case& c) {
  return c.problem.batch * c.problem.q_len;
}
void set_total_tokens(Case& c, const StrictJson& json) {
  c.problem.batch = divided(json, "q_len", c.problem.q_len);
}

// ---- axes with a rule of their own

Axis head_dim_v_axis() {
  Axis axis =
      number_axis("head_dim_v", "Head dimension of V and O: a multiple of 8 (default: head_dim)",
                  Role::optional, &Problem::head_dim_v, kHeadDims, draw_head_dim_v);
  axis.set = [](Case& c, const StrictJson& json) {
    c.problem.set_value_dim(json.is_null() ? c.problem.head_dim : int64_t{json});
  };
  return axis;
}

Json get_lengths(const Case& c) {
  return c.problem.lengths ? Json{{"batch_spec", batch_spec(*c.problem.lengths)}} : Json();
}
void set_lengths(Case& c, const StrictJson& json) {
  c.problem.set_lengths(json.is_null() ? nullptr : read_lengths(json));
}

Axis lengths_axis() {
  const Axis::Objects values{
      .schema = lengths_schema(),
      .example = {{"batch_spec", "2q16_q1s512"}},
      .text = [](const Case& c) { return c.problem.lengths ? c.problem.lengths->id() : ""; },
      .argument = [](const Case& c) { return batch_spec(*c.problem.lengths); },
      .from_option = lengths_of_option};
  return {.name = "lengths",
          .title = "Lengths of each request of the batch (docs/problems.md)",
          .role = Role::optional,
          .values = values,
          .of_problem = true,
          .get = get_lengths,
          .set = set_lengths,
          .draw = draw_lengths,
          .sets = {"batch", "seq", "q_len", "kv_len", "total_tokens"},
          .why = "lengths gives the batch and the lengths of its requests"};
}

Json get_block_table(const Case& c) {
  return c.problem.block_table ? block_table_json(*c.problem.block_table) : Json();
}
void set_block_table(Case& c, const StrictJson& json) {
  c.problem.block_table =
      json.is_null() ? nullptr : std::make_shared<const BlockTable>(read_block_table(json));
}

Axis block_table_axis() {
  const Axis::Objects values{
      .schema = block_table_schema(),
      .example = {{"pages", 5}, {"table", "3,1_0,4"}},
      .text =
          [](const Case& c) { return c.problem.block_table ? c.problem.block_table->id() : ""; },
      .argument = [](const Case& c) { return block_table_argument(*c.problem.block_table); },
      .from_option = block_table_of_option};
  return {.name = "block_table",
          .title = "Pages of each request, in place of page_order (docs/problems.md)",
          .role = Role::optional,
          .values = values,
          .of_problem = true,
          .get = get_block_table,
          .set = set_block_table,
          .sets = {"page_order", "shared_prefix"},
          .why = "block_table gives the pages of each request"};
}

Json get_kv_dtype(const Case& c) {
  return c.problem.kv_dtype ? Json(name(*c.problem.kv_dtype)) : Json();
}
void set_kv_dtype(Case& c, const StrictJson& json) {
  c.problem.kv_dtype.reset();
  if (!json.is_null()) c.problem.kv_dtype = named<Dtype>(json, kKvDtypes);
}

Axis kv_dtype_axis() {
  Axis::Names names;
  for (const Dtype dtype : kKvDtypes) names.emplace_back(name(dtype));
  return {.name = "kv_dtype",
          .title = "Data type of K and V in a K/V cache (default: dtype)",
          .role = Role::optional,
          .values = std::move(names),
          .of_problem = true,
          .get = get_kv_dtype,
          .set = set_kv_dtype,
          .names_itself = true};
}

// ---- the table

std::vector<Axis> make_axes() {
  using enum Axis::Role;
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  return {
      named_axis("pass", "Pass", defaulted, &Problem::pass, kPasses),
      named_axis("dtype", "Data type", defaulted, &Problem::dtype, kDtypes, draw_dtype),
      named_axis("mask", "Mask", defaulted, &Problem::mask, kMasks),
      named_axis("layout", "Order of dimensions (batch, sequence, heads, head dimension)",
                 defaulted, &Problem::layout, kLayouts, draw_layout),
      number_axis("batch", "Batch size", defaulted, &Problem::batch, kSizes, draw_batch),
      number_axis("q_heads", "Query heads", required, &Problem::q_heads, kSizes, draw_heads),
      number_axis("kv_heads", "Key and value heads (default: as many as query heads)", required,
                  &Problem::kv_heads, kSizes, nullptr),  // drawn with q_heads
      shorthand_axis("seq", "Query, key and value length", kLengths, get_seq, set_seq,
                     {"q_len", "kv_len"}, "seq sets both lengths"),
      number_axis("q_len", "Query length", required, &Problem::q_len, kLengths,
                  draw_length<&Problem::q_len>),
      number_axis("kv_len", "Key and value length", required, &Problem::kv_len, kLengths,
                  draw_length<&Problem::kv_len>),
      number_axis("head_dim", "Head dimension: a multiple of 8", required, &Problem::head_dim,
                  kHeadDims, draw_head_dim),
      number_axis("scale", "Softmax scale (default: 1/sqrt(head_dim))", defaulted, &Problem::scale,
                  Axis::Reals{-1e6, 1e6}, draw_scale),
      named_axis("distribution", "Distribution of the inputs (docs/problems.md)", defaulted,
                 &InputSpec::distribution, kDistributions, draw_distribution),
      number_axis("seed", "Seed of the inputs", defaulted, &InputSpec::seed,
                  Axis::Integers{0, kAny}, nullptr),  // of the case, if that is drawn
      named_axis("placement", "Placement of the tensors in memory", optional, &Case::placement,
                 kPlacements, draw_placement),
      number_axis("window_left", "Keys before its own that a query sees (default: all)", optional,
                  &Problem::window_left, kWindows, draw_windows),
      number_axis("window_right", "Keys after its own that a query sees (default: all)", optional,
                  &Problem::window_right, kWindows, nullptr),  // drawn with window_left
      head_dim_v_axis(),
      lengths_axis(),
      number_axis("page_size", "Rows of a page of a paged K/V cache (default: no pages)", optional,
                  &Problem::page_size, kPageSizes, draw_pages),
      named_axis("kv_layout", "Order of dimensions in a paged K/V cache", optional,
                 &Problem::kv_layout, kKvLayouts, draw_nothing),
      named_axis("page_order", "Which pages of the pool the requests have", optional,
                 &Problem::page_order, kPageOrders, draw_nothing),
      number_axis("shared_prefix", "First keys whose full pages all requests share (default: none)",
                  optional, &Problem::shared_prefix, kLengths, nullptr),
      block_table_axis(),
      number_axis("gpus", "Devices that share a problem (default: one, without a split)", optional,
                  &Problem::gpus, Axis::Integers{2, kMaxGpus}, nullptr),
      named_axis("split", "Which tokens the devices have that share a problem", optional,
                 &Problem::split, kSplits, draw_nothing),
      named_axis("descale", "What has a factor of its own in tensors of e4m3", optional,
                 &Problem::descale, kDescales, draw_nothing),
      named_axis("quantize", "Recipe by which bf16 inputs are rounded to bytes (docs/problems.md)",
                 optional, &Problem::quantize, kQuantizes, draw_nothing),
      kv_dtype_axis(),

      // After all that they are divided by.
      shorthand_axis("hidden", "Hidden size", {8, 1 << 28}, get_hidden, set_hidden, {"q_heads"},
                     "q_heads is hidden / head_dim"),
      shorthand_axis("total_tokens", "Tokens", {1, uint64_t{1} << 40}, get_total_tokens,
                     set_total_tokens, {"batch"}, "the batch is total_tokens / seq"),
  };
}

}  // namespace

const std::vector<Axis>& axes() {
  static const std::vector<Axis> table = make_axes();
  return table;
}

const Axis& axis(std::string_view name) {
  for (const Axis& one : axes()) {
    if (one.name == name) return one;
  }
  throw std::out_of_range(fmt::format("no axis {}", name));
}

std::vector<const Axis*> axes_in_order(const std::vector<std::string_view>& first) {
  std::vector<const Axis*> ordered;
  for (const std::string_view name : first) ordered.push_back(&axis(name));
  for (const Axis& other : axes()) {
    if (std::find(first.begin(), first.end(), other.name) == first.end()) ordered.push_back(&other);
  }
  return ordered;
}

std::string Axis::option() const {
  std::string words(name);
  std::replace(words.begin(), words.end(), '_', '-');
  return "--" + words;
}

std::string Axis::text(const Case& c) const {
  if (const Objects* of = objects()) {
    const std::string text = of->text(c);
    return text.empty() ? "default" : text;
  }
  const Json value = get(c);
  if (value.is_null()) return "default";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
}

std::string Axis::argument(const Case& c) const {
  return objects() ? objects()->argument(c) : text(c);
}

bool Axis::is_mentioned(const Case& c) const {
  static const Case kDefaults;
  if (objects()) return !objects()->text(c).empty();
  if (role == Role::optional) return get(c) != get(kDefaults);
  return role != Role::shorthand;
}

Case make_case(const AxisValues& values) {
  Case c;
  c.problem.kv_heads = 0;
  for (const Axis& axis : axes()) {
    const auto given = values.find(axis.name);
    if (given == values.end()) continue;
    try {
      axis.set(c, StrictJson(given->second));
    } catch (const std::invalid_argument& error) {
      throw BadAxis(axis, error.what());
    }
  }
  if (c.problem.kv_heads == 0) c.problem.kv_heads = c.problem.q_heads;
  return c;
}

std::optional<std::string> Case::invalid() const {
  if (auto wrong = problem.invalid()) return wrong;
  if (problem.is_paged() && !problem.block_table && inputs.distribution == Distribution::files) {
    return "distribution files with page_size needs block_table";
  }
  if (problem.quantize != Quantize::none && is_pattern(inputs.distribution)) {
    return fmt::format("distribution {} has exact values, which rounding to bytes would change",
                       name(inputs.distribution));
  }
  if (problem.has_scaled_keys() && inputs.distribution == Distribution::inf_key) {
    return "distribution inf_key has no keys of e4m3, which has no infinity";
  }
  if (!problem.has_scaled_keys() && inputs.distribution == Distribution::subnormals) {
    return "distribution subnormals needs dtype or kv_dtype e4m3";
  }
  if (problem.is_scaled() && inputs.distribution == Distribution::files) {
    return "distribution files has no dtype e4m3; bf16 with quantize rounds it";
  }
  if (problem.shares_pages() && is_pattern(inputs.distribution)) {
    return fmt::format("distribution {} gives each request keys of its own: none can be shared",
                       name(inputs.distribution));
  }
  return std::nullopt;
}

std::string Case::key() const {
  std::string text = problem.id() + "/" + inputs.id();
  for (const Axis& axis : axes()) {
    if (axis.role != Axis::Role::optional || !axis.is_mentioned(*this)) continue;
    text += fmt::format("/{}{}", axis.is_named() ? axis.name : "", axis.text(*this));
  }
  return text;
}

}  // namespace flashbench
