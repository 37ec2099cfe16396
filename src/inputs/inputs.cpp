#include "inputs/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "attention/error.h"
#include "attention/half.h"
#include "files/npy.h"
#include "inputs/padding.h"
#include "inputs/page_order.h"
#include "inputs/patterns.h"
#include "inputs/quantize.h"
#include "inputs/random_value.h"

namespace flashbench {

namespace {

constexpr float kMeanOfV = 1;
constexpr float kChannelOffset = 12;
constexpr int64_t kOffsetChannels = 4;

size_t bytes_of(ConstTensorView view) {
  return static_cast<size_t>(view.elements() * element_size(view.dtype));
}

// The rows of each request in tensor number `tensor`; null where lengths are equal.
const RequestRows* rows_of(const Problem& p, int tensor) {
  if (!p.lengths) return nullptr;
  const bool keys = tensor == 1 || tensor == 2;
  return keys ? &p.lengths->keys() : &p.lengths->queries();
}

// Where the keys of requests are in a pool, and which of them a request fills: where requests share
// a page, the first that has a row.
class PagedRows {
 public:
  PagedRows(const Problem& p, const BlockTable& table) : table_(table), page_size_(*p.page_size) {
    std::vector<int64_t> filled(static_cast<size_t>(table.pages()), 0);
    for (int64_t b = 0; b < p.batch; ++b) {
      first_own_.emplace_back();
      for (int64_t i = 0; i < p.pages_of(b); ++i) {
        int64_t& rows = filled[static_cast<size_t>(table.at(b, i))];
        first_own_.back().push_back(rows);
        rows = std::max(rows, std::min(page_size_, p.kv_len_of(b) - i * page_size_));
      }
    }
    rows_of_pages_ = RequestRows(filled);
  }

  const BlockTable& table() const { return table_; }

  // The rows of each page that any request has.
  const RequestRows& rows_of_pages() const { return rows_of_pages_; }

  bool fills(int64_t b, int64_t row) const {
    const std::vector<int64_t>& first = first_own_[static_cast<size_t>(b)];
    return row % page_size_ >= first[static_cast<size_t>(row / page_size_)];
  }

 private:
  const BlockTable& table_;
  int64_t page_size_;
  std::vector<std::vector<int64_t>> first_own_;  // in each page of each request
  RequestRows rows_of_pages_{{}};
};

// A tensor to fill.
struct Target {
  const Problem& p;
  int tensor;         // its number
  TensorView memory;  // as a file has it
  const PagedRows* pages = nullptr;

  TensorView rows() const {  // of the requests
    if (pages == nullptr) return memory;
    return paged_view(memory, p, pages->table().data(), pages->table().width());
  }
};

// Calls body(batch, row, index of the row's first element) for each row, in parallel. Padding has
// no index, so that each layout holds the same values.
template <typename Body>
void for_rows(const Target& target, ThreadPool& pool, const Body& body) {
  const TensorView view = target.rows();
  const RequestRows* rows = rows_of(target.p, target.tensor);
  const int64_t count = rows == nullptr ? view.all_rows() : rows->total();
  pool.parallel_for(count, [&](int64_t item, int) {
    const int64_t b = rows == nullptr ? item / view.length : rows->request_of(item);
    const int64_t row = rows == nullptr ? item % view.length : item - rows->first(b);
    if (target.pages != nullptr && !target.pages->fills(b, row)) return;
    body(b, row, static_cast<uint64_t>(item * view.heads * view.head_dim));
  });
}

void fill_pattern(const Target& target, const InputSpec& spec, ThreadPool& pool) {
  const TensorView view = target.rows();
  for_rows(target, pool, [&](int64_t b, int64_t row, uint64_t index) {
    for (int64_t h = 0; h < view.heads; ++h) {
      fill_pattern_row(target.p, spec.distribution, spec.seed, target.tensor, b, h, row, index,
                       view);
      index += static_cast<uint64_t>(view.head_dim);
    }
  });
}

using Bytes = HostVector<std::byte>;

// A random tensor whose elements are stored in index order: it depends on its number of elements,
// and on nothing else of the problem's shape. Successive cases often need the same tensor, and
// making it takes longer than running attention on it.
struct RandomTensor {
  Distribution distribution;
  uint64_t seed;
  Dtype dtype;
  std::shared_ptr<const Bytes> bytes;
};

class RandomTensors {
 public:
  // Returns the last tensor made with this number, if it is the same.
  std::shared_ptr<const Bytes> find(const InputSpec& spec, int tensor, Dtype dtype, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const RandomTensor& last = last_[static_cast<size_t>(tensor)];
    const bool same = last.bytes != nullptr && last.distribution == spec.distribution &&
                      last.seed == spec.seed && last.dtype == dtype && last.bytes->size() == bytes;
    return same ? last.bytes : nullptr;
  }
  void keep(const InputSpec& spec, int tensor, Dtype dtype, std::shared_ptr<const Bytes> bytes) {
    if (bytes->size() > kMostKept) return;
    const std::lock_guard lock(mutex_);
    last_[static_cast<size_t>(tensor)] = {spec.distribution, spec.seed, dtype, std::move(bytes)};
  }

 private:
  static constexpr size_t kMostKept = size_t{128} << 20;

  std::mutex mutex_;
  std::array<RandomTensor, 4> last_{};  // by tensor number
};

RandomTensors& random_tensors() {
  static RandomTensors tensors;
  return tensors;
}

// What is added to normal noise in this column.
float offset_of(Distribution distribution, int tensor, int64_t column, int64_t columns) {
  if (distribution == Distribution::mean_v && tensor == 2) return kMeanOfV;
  const bool offset = distribution == Distribution::channel_offsets && tensor == 1 &&
                      column % (columns / kOffsetChannels) == 0;
  return offset ? kChannelOffset : 0;
}

void fill_random(const Target& target, const InputSpec& spec, ThreadPool& pool) {
  const TensorView view = target.rows();
  for_rows(target, pool, [&](int64_t b, int64_t row, uint64_t index) {
    for (int64_t h = 0; h < view.heads; ++h) {
      for (int64_t column = 0; column < view.head_dim; ++column) {
        store_element(view.data, view.dtype, view.offset(b, h, row) + column,
                      random_value(spec.distribution, spec.seed, target.tensor, index++) +
                          offset_of(spec.distribution, target.tensor, column, view.head_dim));
      }
    }
  });
}

void fill_from_file(const Target& target, const std::string& path) {
  const TensorView& memory = target.memory;
  const bool paged = target.pages != nullptr;
  const NpyArray array = read_npy(path);
  const std::vector<int64_t> expected =
      shape_in(paged ? target.p.key_layout() : target.p.layout, memory);
  if (array.shape != expected) {
    throw BadInput(fmt::format(
        "{}: expected shape [{}] ({}), found [{}]", path, fmt::join(expected, ", "),
        paged ? name(target.p.kv_layout) : name(target.p.layout), fmt::join(array.shape, ", ")));
  }
  if (array.type != npy_type(memory.dtype)) {
    throw BadInput(fmt::format("{}: expected {} for dtype {}, found {}", path,
                               name(npy_type(memory.dtype)), name(memory.dtype), name(array.type)));
  }
  if (!array.data.empty()) std::memcpy(memory.data, array.data.data(), array.data.size());
}

// Rows that no request has.
void fill_other_rows(const Target& target, Distribution distribution) {
  const bool is_k = target.tensor == 1;
  const auto fill =
      distribution == Distribution::nan_v_padding && is_k ? clear_padding : poison_padding;
  if (target.pages != nullptr) {
    fill(target.memory, target.pages->rows_of_pages());
  } else if (target.p.is_padded()) {
    fill(target.memory, *rows_of(target.p, target.tensor));
  }
}

// Makes a tensor; the target's memory has no data yet.
std::shared_ptr<const Bytes> filled(Target target, const InputSpec& spec, const std::string& path,
                                    ThreadPool& pool) {
  TensorView& memory = target.memory;
  const bool random = spec.distribution != Distribution::files && !is_pattern(spec.distribution);
  const bool in_order =
      random && target.p.layout != Layout::bhsd && !target.p.is_padded() && target.pages == nullptr;
  if (in_order) {
    auto kept = random_tensors().find(spec, target.tensor, memory.dtype, bytes_of(memory));
    if (kept != nullptr) return kept;
  }
  auto bytes = std::make_shared<Bytes>(bytes_of(memory));
  memory.data = bytes->data();
  if (random) {
    fill_random(target, spec, pool);
  } else if (spec.distribution == Distribution::files) {
    fill_from_file(target, path);
  } else {
    fill_pattern(target, spec, pool);
  }
  fill_other_rows(target, spec.distribution);
  if (in_order) random_tensors().keep(spec, target.tensor, memory.dtype, bytes);
  return bytes;
}

DescaleRule descale_rule(Distribution distribution) {
  if (!is_pattern(distribution)) return descale_of;
  return [=](float amax, float) { return pattern_descale(distribution, amax); };
}

// A tensor of e4m3 with its factors, and what was rounded to it.
struct Rounded {
  std::shared_ptr<const Bytes> bytes, values;
  HostVector<float> descales;
};

// All rows of a tensor as they lie in memory, of whatever request.
TensorView rows_in_memory(TensorView t) {
  if (t.ragged == nullptr) return t;
  t.length = t.all_rows();
  t.batch = 1;
  t.ragged = nullptr;
  return t;
}

// Fills a tensor of this dtype, and rounds it. `target`: the tensor of e4m3, which has the factors
// that `descales` says, but no data yet.
Rounded rounded(Target target, Dtype dtype, const Descales& descales, int64_t factors,
                const InputSpec& spec, const std::string& path, ThreadPool& pool) {
  Rounded result;
  Target wide = target;
  wide.memory.dtype = dtype;
  result.values = filled(wide, spec, path, pool);
  auto bytes = std::make_shared<Bytes>(bytes_of(target.memory));
  result.descales.resize(static_cast<size_t>(factors));
  TensorView to = rows_in_memory(target.memory);
  to.data = bytes->data();
  to.descales = descales;
  to.descales.data = result.descales.data();
  const auto load = [&](int64_t b, int64_t h, int64_t row, float* values) {
    const int64_t at = to.offset(b, h, row);
    for (int64_t c = 0; c < to.head_dim; ++c) {
      values[c] = load_element(result.values->data(), dtype, at + c);
    }
  };
  quantize(load, ByteFormat::e4m3, to, result.descales.data(), pool,
           descale_rule(spec.distribution));
  result.bytes = std::move(bytes);
  return result;
}

}  // namespace

std::vector<int64_t> shape_in(Layout layout, const ConstTensorView& t) {
  switch (layout) {
    case Layout::bshd:
      return {t.batch, t.length, t.heads, t.head_dim};
    case Layout::bhsd:
      return {t.batch, t.heads, t.length, t.head_dim};
    case Layout::ragged:
      return {t.all_rows(), t.heads, t.head_dim};
  }
  throw std::logic_error("no such layout");
}

std::string InputSpec::id() const {
  if (distribution == Distribution::files) return fmt::format("files/{},{},{},{}", q, k, v, d_o);
  return fmt::format("{}/seed{}", name(distribution), seed);
}

HostTensors::HostTensors(const Problem& problem, const InputSpec& spec, ThreadPool& pool)
    : problem_(problem) {
  if (problem.is_paged()) table_ = make_block_table(problem, spec.seed);
  const std::optional<PagedRows> paged =
      table_ ? std::optional<PagedRows>(std::in_place, problem, *table_) : std::nullopt;
  const PagedRows* pages = paged ? &*paged : nullptr;
  const TensorView output = output_view<void>(nullptr, problem);
  const Target q{problem, 0, query_view<void>(nullptr, problem)};
  const Target k{problem, 1, key_view<void>(nullptr, problem), pages};
  const Target v{problem, 2, value_view<void>(nullptr, problem), pages};
  if (problem.is_scaled()) {
    const Descales factors = query_descales_view(nullptr, problem);
    Rounded bytes = rounded(q, Dtype::fp32, factors, problem.query_descales(), spec, spec.q, pool);
    q_ = std::move(bytes.bytes);
    q_descales_ = std::move(bytes.descales);
  } else {
    q_ = filled(q, spec, spec.q, pool);
  }
  if (problem.has_scaled_keys()) {
    const Dtype before = problem.is_scaled() ? Dtype::fp32 : problem.dtype;
    const Descales factors = key_descales_view(nullptr, problem);
    const bool keeps = problem.kv_dtype && !is_pattern(spec.distribution);
    const auto round = [&](const Target& target, const std::string& path, auto& tensor,
                           HostVector<float>& descales, auto& values) {
      Rounded bytes = rounded(target, before, factors, problem.key_descales(), spec, path, pool);
      tensor = std::move(bytes.bytes);
      descales = std::move(bytes.descales);
      if (keeps) values = std::move(bytes.values);
    };
    round(k, spec.k, k_, k_descales_, k_before_);
    round(v, spec.v, v_, v_descales_, v_before_);
    return;
  }
  k_ = filled(k, spec, spec.k, pool);
  v_ = filled(v, spec, spec.v, pool);
  if (problem.pass == Pass::backward) {
    d_o_ = filled({problem, 3, output}, spec, spec.d_o, pool);
    o_.resize(bytes_of(output));
    logsumexp_.resize(static_cast<size_t>(problem.query_rows()));
    if (problem.is_padded()) {
      poison_padding(mutable_o(), problem.lengths->queries());
      poison_padding(logsumexp_view<void>(logsumexp_.data(), problem), problem.lengths->queries());
    }
  }
}

Inputs HostTensors::inputs() const {
  Inputs inputs;
  inputs.q = query_view<const void>(q_->data(), problem_);
  inputs.k = key_view<const void>(k_->data(), problem_);
  inputs.v = value_view<const void>(v_->data(), problem_);
  inputs.q.descales = query_descales_view(q_descales_.data(), problem_);
  inputs.k.descales = key_descales_view(k_descales_.data(), problem_);
  inputs.v.descales = key_descales_view(v_descales_.data(), problem_);
  if (table_) {
    inputs.k = paged_view(inputs.k, problem_, table_->data(), table_->width());
    inputs.v = paged_view(inputs.v, problem_, table_->data(), table_->width());
  }
  if (problem_.pass == Pass::backward) {
    inputs.o = output_view<const void>(o_.data(), problem_);
    inputs.d_o = output_view<const void>(d_o_->data(), problem_);
    inputs.logsumexp = logsumexp_.data();
  }
  return inputs;
}

std::optional<Inputs> HostTensors::before_rounding() const {
  if (k_before_ == nullptr) return std::nullopt;
  Inputs before = inputs();
  const auto wide = [&](ConstTensorView& t, const Bytes& values) {
    t.data = values.data();
    t.dtype = problem_.dtype;
    t.descales = {};
  };
  wide(before.k, *k_before_);
  wide(before.v, *v_before_);
  return before;
}

TensorView HostTensors::mutable_o() {
  return output_view<void>(o_.data(), problem_);
}

}  // namespace flashbench
