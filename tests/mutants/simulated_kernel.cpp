#include "simulated_kernel.h"

#include <algorithm>
#include <barrier>
#include <cfenv>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "attention/half.h"

namespace flashbench::verify {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Rows [0, length) of one head in fp32. Where the tensor ends before, its last row stands for the
// others: what is behind it is not the kernel's.
struct Head {
  Head(const ConstTensorView& tensor, int64_t batch, int64_t head, int64_t length)
      : rows(length), cols(tensor.head_dim) {
    const int64_t last = last_row(tensor, batch);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = tensor.offset(batch, head, std::min(row, last));
      for (int64_t column = 0; column < cols; ++column) {
        values.push_back(load_element(tensor.data, tensor.dtype, at + column));
      }
    }
  }
  const float* row(int64_t i) const { return values.data() + i * cols; }

  int64_t rows, cols;
  std::vector<float> values;

 private:
  static int64_t last_row(const ConstTensorView& tensor, int64_t batch) {
    if (tensor.is_paged())
      return tensor.end_of_run(std::max<int64_t>(tensor.rows(batch), 1) - 1) - 1;
    if (tensor.ragged == nullptr) return tensor.length - 1;
    return tensor.all_rows() - 1 - tensor.ragged->first(batch);
  }
};

// The pages of one request, as a kernel with the defect finds them. An entry that is no page leads
// to one of the pool here, where it would lead anywhere.
std::vector<int32_t> pages_found(const Problem& p, const ConstTensorView& tensor, int64_t request,
                                 bool of_v, Defect defect) {
  const int64_t count = p.pages_of(request);
  std::vector<int32_t> found;
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = request * tensor.pages.stride + i;
    if (defect == Defect::pages_of_next_request) {
      at = (request + 1) % p.batch * tensor.pages.stride + i;
    } else if (defect == Defect::table_entry_too_far) {
      ++at;
    } else if (defect == Defect::table_stride_floored) {
      at = request * (p.kv_len / *p.page_size) + i;
    } else if (defect == Defect::v_from_next_page && of_v) {
      at += (i + 1) % count - i;
    }
    found.push_back(static_cast<int32_t>(tensor.pages.table[at] % p.pool_pages()));
  }
  return found;
}

// The transposed rows, so that a row's scores are computed side by side.
std::vector<float> transposed(const Head& head) {
  std::vector<float> result(head.values.size());
  for (int64_t row = 0; row < head.rows; ++row) {
    for (int64_t column = 0; column < head.cols; ++column) {
      result[static_cast<size_t>(column * head.rows + row)] = head.row(row)[column];
    }
  }
  return result;
}

void store_row(const TensorView& tensor, int64_t b, int64_t h, int64_t row, const float* values) {
  for (int64_t column = 0; column < tensor.head_dim; ++column) {
    store_element(tensor.data, tensor.dtype, tensor.offset(b, h, row) + column, values[column]);
  }
}

// Sums round toward zero during this object's lifetime.
class Truncation {
 public:
  explicit Truncation(bool on) {
    if (on) std::fesetround(FE_TOWARDZERO);
  }
  ~Truncation() { std::fesetround(FE_TONEAREST); }
};

// exp() that flushes subnormal results to zero, like vectorised versions.
float flushing_exp(float x) {
  const float value = std::exp(x);
  return value < std::numeric_limits<float>::min() ? 0 : value;
}

// Two threads add to one sum without mutual exclusion, and one update is always lost: both read the
// sum before either writes it, and the first thread writes last, over the other's update.
void add_racing(std::vector<float>& sum, const std::vector<float>& first,
                const std::vector<float>& second) {
  std::barrier both_have_read(2);
  const auto read_and_add = [&](const std::vector<float>& part) {
    std::vector<float> updated(sum);
    for (size_t i = 0; i < sum.size(); ++i) updated[i] += part[i];
    both_have_read.arrive_and_wait();
    return updated;
  };
  std::thread other([&] { sum = read_and_add(second); });
  const std::vector<float> updated = read_and_add(first);
  other.join();
  sum = updated;
}

// Problem::visible_keys of request `p`, as a kernel with the defect has it.
RowRange keys_seen(const Problem& whole, const Problem& p, int64_t row, Defect defect,
                   int64_t key_tile) {
  Problem wrong = p;
  RowRange keys = p.visible_keys(row);
  switch (defect) {
    case Defect::other_causal_corner:
      wrong.mask =
          p.mask == Mask::causal_top_left ? Mask::causal_bottom_right : Mask::causal_top_left;
      return wrong.visible_keys(row);
    case Defect::last_key_ignored:
      if (keys.size() > 1) --keys.end;
      return keys;
    case Defect::window_left_too_long:
      if (wrong.window_left) ++*wrong.window_left;
      return wrong.visible_keys(row);
    case Defect::window_right_too_long:
      if (wrong.window_right) ++*wrong.window_right;
      return wrong.visible_keys(row);
    case Defect::window_at_top_left: {
      wrong.window_left = wrong.window_right = std::nullopt;
      keys = wrong.visible_keys(row);
      if (p.window_left)
        keys.first = std::min(std::max<int64_t>(0, row - *p.window_left), keys.end);
      if (p.window_right) {
        keys.end = std::max(std::min(row + *p.window_right + 1, keys.end), keys.first);
      }
      return keys;
    }
    case Defect::window_ends_unmasked:
      if (keys.empty()) return keys;
      return {keys.first / key_tile * key_tile,
              std::min((keys.end + key_tile - 1) / key_tile * key_tile, p.kv_len)};
    case Defect::end_of_keys_unmasked:
      if (keys.end < p.kv_len || keys.empty()) return keys;
      return {keys.first, (keys.end + key_tile - 1) / key_tile * key_tile};
    case Defect::page_tail_unmasked: {
      if (keys.end < p.kv_len || keys.empty() || !whole.is_paged()) return keys;
      const int64_t page_size = *whole.page_size;
      return {keys.first, (keys.end + page_size - 1) / page_size * page_size};
    }
    case Defect::longest_diagonal: {
      if (p.mask == Mask::none) return keys;
      const int64_t longest = p.mask == Mask::causal_top_left ? 0 : whole.kv_len - whole.q_len;
      const int64_t end = std::clamp<int64_t>(row + longest + 1, 0, p.kv_len);
      return {std::min(keys.first, end), end};
    }
    default:
      return keys;
  }
}

// On one request.
class Kernel {
 public:
  Kernel(const Problem& whole, int64_t request, const Inputs& in, const Outputs& out,
         const Simulation& simulation)
      : whole_(whole),
        p_(whole.request(request)),
        in_(in),
        out_(out),
        simulation_(simulation),
        scale_(static_cast<float>(whole.softmax_scale())) {
    if (is(Defect::scale_one_percent)) scale_ *= 1.01f;
    if (is(Defect::scale_from_head_dim_v)) {
      scale_ = 1 / std::sqrt(static_cast<float>(whole.value_dim()));
    }
  }

  // Of a query row over some of its keys, or all; O times the sum.
  struct PartOfRow {
    float max, sum;
    std::vector<float> o;
  };

  void forward_head(int64_t batch, int64_t head) const;
  void backward_group(int64_t batch, int64_t kv_head) const;

 private:
  bool is(Defect defect) const { return simulation_.defect == defect; }

  // The end of the first `splits` parts of the keys.
  int64_t split_end(RowRange visible, int64_t splits) const;
  // Rounds O as a part that is stored is.
  void store(PartOfRow&) const;
  // Adds a part; the first of all is stored when the second comes.
  void merge(PartOfRow& all, PartOfRow part, bool is_second) const;

  int64_t kv_head_of(int64_t head) const {
    const int64_t kv_head = head / p_.heads_per_kv_head();
    return is(Defect::next_kv_head) ? (kv_head + 1) % p_.kv_heads : kv_head;
  }

  RowRange visible_keys(int64_t row) const {
    return keys_seen(whole_, p_, row, simulation_.defect, simulation_.key_tile);
  }

  // Rows of K and V that the kernel reads.
  Head key_rows(const ConstTensorView& tensor, int64_t batch, int64_t head) const {
    const int64_t whole_tiles = is(Defect::end_of_keys_unmasked) ? simulation_.key_tile
                                : is(Defect::page_tail_unmasked) ? *whole_.page_size
                                                                 : 1;
    const int64_t length = (p_.kv_len + whole_tiles - 1) / whole_tiles * whole_tiles;
    const bool next = is(Defect::keys_of_next_request);
    if (!tensor.is_paged()) {
      return Head(tensor, next ? (batch + 1) % whole_.batch : batch, head, length);
    }
    const bool of_v = tensor.data == in_.v.data;
    const std::vector<int32_t> pages = pages_found(whole_, tensor, batch, of_v, simulation_.defect);
    ConstTensorView found = tensor;
    found.pages.table = pages.data();
    found.pages.stride = 0;
    return Head(found, batch, head, length);
  }

  // Calls body(tile, keys) for each tile of which the row sees these keys. Tiles are named by their
  // first key.
  template <typename Body>
  void for_tiles(RowRange visible, const Body& body) const {
    const int64_t tile_keys = simulation_.key_tile;
    for (int64_t tile = visible.first / tile_keys * tile_keys; tile < visible.end;
         tile += tile_keys) {
      if (dropped(tile / tile_keys)) continue;
      body(tile, RowRange{std::max(tile, visible.first), std::min(tile + tile_keys, visible.end)});
    }
  }

  bool dropped(int64_t tile) const {
    return is(Defect::dropped_key_tile) && tile == p_.kv_len / simulation_.key_tile / 2;
  }

  float rounded(float value) const {
    if (is(Defect::p_in_bf16)) return round_to(Dtype::bf16, value);
    return simulation_.p_in_dtype ? round_to(p_.dtype, value) : value;
  }

  // An element of S or dP after storing it in memory.
  float stored(float value) const {
    return simulation_.scores_in_dtype ? round_to(p_.dtype, value) : value;
  }
  float score(float dot_product) const { return stored(dot_product * scale_); }
  // The factor of the scale that is already in dS in its products.
  float ds_scale() const { return simulation_.ds_scaled ? scale_ : 1; }

  // V as the kernel finds its rows.
  Head values(int64_t batch, int64_t head) const {
    Head v = key_rows(in_.v, batch, head);
    if (!is(Defect::v_stride_of_head_dim)) return v;
    const std::vector<float> real = v.values;
    for (int64_t i = 0; i < v.rows * v.cols; ++i) {
      const int64_t at = i / v.cols * p_.head_dim + i % v.cols;
      v.values[static_cast<size_t>(i)] = real[static_cast<size_t>(at) % real.size()];
    }
    return v;
  }

  // scores[j] = sum over the columns of `a` of a[column] * bt[column][first + j]
  void dot_products(const float* a, const std::vector<float>& bt, int64_t first, int64_t count,
                    int64_t length, std::vector<float>& scores) const {
    const Truncation truncation(simulation_.truncate);
    std::fill_n(scores.begin(), count, 0.0f);
    const int64_t columns = static_cast<int64_t>(bt.size()) / length;
    for (int64_t column = 0; column < columns; ++column) {
      const float* b = bt.data() + column * length + first;
      for (int64_t j = 0; j < count; ++j) scores[static_cast<size_t>(j)] += a[column] * b[j];
    }
  }

  static void add_scaled(float* sum, float weight, const float* row, int64_t columns) {
    for (int64_t column = 0; column < columns; ++column) sum[column] += weight * row[column];
  }

  // sum += weights * rows [first, first + count), for one query row
  void add_products(std::vector<float>& sum, const std::vector<float>& weights, const Head& rows,
                    int64_t first, int64_t count, int64_t query) const {
    const Truncation truncation(simulation_.truncate);
    const auto add = [&](std::vector<float>& to, int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        add_scaled(to.data(), weights[static_cast<size_t>(j)], rows.row(first + j), rows.cols);
      }
    };
    if (!is(Defect::accumulator_race) || query != p_.q_len - 1) return add(sum, 0, count);
    std::vector<float> halves[2]{std::vector<float>(sum.size()), std::vector<float>(sum.size())};
    add(halves[0], 0, count / 2);
    add(halves[1], count / 2, count);
    add_racing(sum, halves[0], halves[1]);
  }

  const Problem& whole_;
  const Problem p_;  // the request
  const Inputs& in_;
  const Outputs& out_;
  const Simulation& simulation_;
  float scale_;
};

int64_t Kernel::split_end(RowRange visible, int64_t splits) const {
  return visible.first + visible.size() * splits / simulation_.splits;
}

void Kernel::store(PartOfRow& part) const {
  for (float& element : part.o) {
    if (part.sum != 0) element = round_to(simulation_.partials, element / part.sum) * part.sum;
  }
}

void Kernel::merge(PartOfRow& all, PartOfRow part, bool is_second) const {
  if (is_second) store(all);
  store(part);
  if (part.sum == 0) return;
  const float max = std::max(all.max, part.max);
  const float of_all = all.sum == 0 ? 0 : std::exp(all.max - max), own = std::exp(part.max - max);
  for (size_t i = 0; i < all.o.size(); ++i) all.o[i] = all.o[i] * of_all + part.o[i] * own;
  all.sum = all.sum * of_all + part.sum * own;
  all.max = max;
}

void Kernel::forward_head(int64_t batch, int64_t head) const {
  const Head q(in_.q, batch, head, p_.q_len), k = key_rows(in_.k, batch, kv_head_of(head)),
                                              v = values(batch, kv_head_of(head));
  const std::vector<float> kt = transposed(k);
  const int64_t tile_keys = simulation_.key_tile;
  std::vector<float> scores(static_cast<size_t>(tile_keys));
  const auto part_of_row = [&](int64_t row, RowRange visible) {
    float max = -kInfinity, sum = 0;
    std::vector<float> o(static_cast<size_t>(p_.value_dim()));
    for_tiles(visible, [&](int64_t tile, RowRange keys) {
      const int64_t first = keys.first, count = keys.size();
      dot_products(q.row(row), kt, first, count, k.rows, scores);
      float new_max = max;
      for (int64_t j = 0; j < count; ++j) {
        scores[static_cast<size_t>(j)] = score(scores[static_cast<size_t>(j)]);
        new_max = std::max(new_max, scores[static_cast<size_t>(j)]);
      }
      const float rescale = max == -kInfinity ? 0 : std::exp(max - new_max);
      sum *= rescale;
      if (!is(Defect::missing_rescale)) {
        for (float& element : o) element *= rescale;
      }
      max = new_max;
      for (int64_t j = 0; j < count; ++j) {
        const float weight = flushing_exp(scores[static_cast<size_t>(j)] - max);
        sum += weight;
        scores[static_cast<size_t>(j)] = rounded(weight);
      }
      if (is(Defect::unmasked_padding)) {
        sum += static_cast<float>(tile + tile_keys - keys.end) * std::exp(-max);
      }
      add_products(o, scores, v, first, count, row);
    });
    return PartOfRow{max, sum, std::move(o)};
  };
  const int64_t rows = is(Defect::stale_row) ? p_.q_len - 1 : p_.q_len;
  for (int64_t row = 0; row < rows; ++row) {
    const RowRange visible = visible_keys(row);
    PartOfRow all = part_of_row(row, {visible.first, split_end(visible, 1)});
    for (int64_t split = 1; split < simulation_.splits; ++split) {
      const RowRange keys{split_end(visible, split), split_end(visible, split + 1)};
      merge(all, part_of_row(row, keys), split == 1);
    }
    for (float& element : all.o) {
      element = all.sum == 0 || is(Defect::zeros) ? 0 : element / all.sum;
    }
    store_row(out_.o, batch, head, row, all.o.data());
    out_.logsumexp[whole_.query_index(batch, head, row)] =
        is(Defect::wrong_logsumexp) ? all.max : all.max + std::log(all.sum);
  }
}

void Kernel::backward_group(int64_t batch, int64_t kv_head) const {
  const int64_t source = is(Defect::next_kv_head) ? (kv_head + 1) % p_.kv_heads : kv_head;
  const Head k = key_rows(in_.k, batch, source), v = values(batch, source);
  const std::vector<float> kt = transposed(k), vt = transposed(v);
  const int64_t d_columns =
      is(Defect::d_over_head_dim) ? std::min(p_.head_dim, p_.value_dim()) : p_.value_dim();
  std::vector<float> dk(k.values.size()), dv(v.values.size()), dq(static_cast<size_t>(p_.head_dim));
  const int64_t tile_keys = simulation_.key_tile;
  std::vector<float> scores(static_cast<size_t>(tile_keys)), d_p(scores);
  for (int64_t i = 0; i < p_.heads_per_kv_head(); ++i) {
    const int64_t head = kv_head * p_.heads_per_kv_head() + i;
    const Head q(in_.q, batch, head, p_.q_len), o(in_.o, batch, head, p_.q_len),
        d_o(in_.d_o, batch, head, p_.q_len);
    for (int64_t row = 0; row < p_.q_len; ++row) {
      const float logsumexp = in_.logsumexp[whole_.query_index(batch, head, row)];
      const RowRange visible = visible_keys(row);
      float d = 0;
      for (int64_t column = 0; column < d_columns; ++column) {
        d += d_o.row(row)[column] * o.row(row)[column];
      }
      if (is(Defect::d_omitted)) d = 0;
      std::fill(dq.begin(), dq.end(), 0.0f);
      for_tiles(visible, [&](int64_t tile, RowRange keys) {
        const int64_t first = keys.first, count = keys.size();
        dot_products(q.row(row), kt, first, count, k.rows, scores);
        dot_products(d_o.row(row), vt, first, count, k.rows, d_p);
        for (int64_t j = 0; j < count; ++j) {
          const auto index = static_cast<size_t>(j);
          const bool unnormalised = is(Defect::dv_unnormalised) && first == visible.first;
          const float scaled = score(scores[index]);
          const float probability = flushing_exp(scaled - logsumexp);
          const float factor = simulation_.ds_of_rounded_p ? rounded(probability) : probability;
          d_p[index] = rounded(factor * (stored(d_p[index]) - d) * ds_scale());
          scores[index] = unnormalised ? std::exp(scaled) : rounded(probability);
        }
        if (!is(Defect::dq_misses_tile) || tile + tile_keys < visible.end) {
          add_products(dq, d_p, k, first, count, row);
        }
        const bool skip_dk = is(Defect::dk_misses_rows) && row >= p_.q_len - 16;
        const Truncation truncation(simulation_.truncate);
        for (int64_t j = 0; j < count; ++j) {
          const auto index = static_cast<size_t>(j);
          const int64_t key = first + j;
          if (!skip_dk) add_scaled(dk.data() + key * k.cols, d_p[index], q.row(row), k.cols);
          add_scaled(dv.data() + key * v.cols, scores[index], d_o.row(row), v.cols);
        }
      });
      for (float& element : dq) element *= is(Defect::zeros) ? 0 : scale_ / ds_scale();
      store_row(out_.dq, batch, head, row, dq.data());
    }
  }
  for (float& element : dk) element *= is(Defect::zeros) ? 0 : scale_ / ds_scale();
  for (float& element : dv) element *= is(Defect::zeros) ? 0 : 1;
  const int64_t rows = is(Defect::stale_row) ? p_.kv_len - 1 : p_.kv_len;
  for (int64_t row = 0; row < rows; ++row) {
    store_row(out_.dk, batch, kv_head, row, dk.data() + row * k.cols);
    store_row(out_.dv, batch, kv_head, row, dv.data() + row * v.cols);
  }
}

}  // namespace

bool shows(Defect defect, const Problem& p, int64_t key_tile) {
  const bool forward = p.pass == Pass::forward;
  switch (defect) {
    case Defect::none:
    case Defect::stale_output:
      return false;
    case Defect::p_in_bf16:
      return p.dtype != Dtype::bf16;
    case Defect::other_causal_corner:
      return p.mask != Mask::none && p.q_len != p.kv_len;
    case Defect::next_kv_head:
      return p.kv_heads > 1;
    case Defect::missing_rescale:
      return forward && p.kv_len > key_tile;
    case Defect::unmasked_padding:
      return forward && p.kv_len % key_tile != 0;
    case Defect::wrong_logsumexp:
      return forward;
    case Defect::accumulator_race:
      return p.visible_keys(p.q_len - 1).size() > 1;
    case Defect::window_left_too_long:
    case Defect::window_right_too_long:
    case Defect::window_at_top_left:
    case Defect::window_ends_unmasked:
      for (int64_t row = 0; row < p.q_len; ++row) {
        if (keys_seen(p, p, row, defect, key_tile) != p.visible_keys(row)) return true;
      }
      return false;
    case Defect::keys_of_next_request:
      return p.lengths && p.batch > 1;
    case Defect::table_entry_too_far:
      return p.is_paged();
    case Defect::pages_of_next_request:
    case Defect::table_stride_floored:
      return p.is_paged() && p.batch > 1;
    case Defect::v_from_next_page:
      return p.is_paged() && p.kv_len > *p.page_size;
    case Defect::end_of_keys_unmasked:
    case Defect::longest_diagonal:
    case Defect::page_tail_unmasked:
      for (int64_t b = 0; (p.lengths || p.is_paged()) && b < p.batch; ++b) {
        const Problem request = p.request(b);
        for (int64_t row = 0; row < request.q_len; ++row) {
          if (keys_seen(p, request, row, defect, key_tile) != request.visible_keys(row)) {
            return true;
          }
        }
      }
      return false;
    case Defect::d_omitted:
    case Defect::dq_misses_tile:
    case Defect::dk_misses_rows:
    case Defect::dv_unnormalised:
      return !forward;
    case Defect::v_stride_of_head_dim:
      return p.value_dim() != p.head_dim && p.kv_len > 1;
    case Defect::d_over_head_dim:
      return !forward && p.value_dim() > p.head_dim;
    case Defect::scale_from_head_dim_v:
      return p.value_dim() != p.head_dim && !p.scale;
    default:
      return true;
  }
}

void simulate(const Problem& p, const Inputs& inputs, const Outputs& outputs,
              const Simulation& simulation, ThreadPool& pool) {
  const bool forward = p.pass == Pass::forward;
  const int64_t heads = forward ? p.q_heads : p.kv_heads;
  pool.parallel_for(p.batch * heads, [&](int64_t item, int) {
    const Kernel kernel(p, item / heads, inputs, outputs, simulation);
    if (forward) {
      kernel.forward_head(item / heads, item % heads);
    } else {
      kernel.backward_group(item / heads, item % heads);
    }
  });
}

}  // namespace flashbench::verify
