#include "attention/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "attention/pages.h"
#include "attention/recipe.h"

namespace flashbench {

namespace {

// sum over i in [0, q_len) of clamp(i + 1 + offset, 0, kv_len)
int64_t pairs_up_to(int64_t q_len, int64_t kv_len, int64_t offset) {
  const int64_t first = std::clamp<int64_t>(-offset, 0, q_len);             // first row with a key
  const int64_t full = std::clamp<int64_t>(kv_len - offset, first, q_len);  // first row with all
  const int64_t rows = full - first;
  const int64_t ramp = rows * (first + 1 + offset) + rows * (rows - 1) / 2;
  return ramp + (q_len - full) * kv_len;
}

constexpr int64_t kTableEntryBytes = sizeof(int32_t);

}  // namespace

int64_t element_size(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return 4;
    case Dtype::fp16:
    case Dtype::bf16:
      return 2;
    case Dtype::e4m3:
      return 1;
  }
  throw std::logic_error("no such dtype");
}

void Problem::set_lengths(std::shared_ptr<const Lengths> given) {
  lengths = std::move(given);
  if (!lengths) return;
  batch = lengths->requests();
  q_len = lengths->queries().longest();
  kv_len = lengths->keys().longest();
}

Problem Problem::of_one_device() const {
  Problem one = *this;
  one.gpus.reset();
  one.split = Split::zigzag;
  return one;
}

Problem Problem::request(int64_t b) const {
  Problem one = without_pages(*this);
  one.batch = 1;
  if (!lengths) return one;
  one.q_len = lengths->queries().count(b);
  one.kv_len = lengths->keys().count(b);
  one.lengths = nullptr;
  if (is_ragged()) one.layout = Layout::bshd;  // so its rows lie
  return one;
}

Problem Problem::without_kv_dtype() const {
  Problem same = *this;
  same.kv_dtype.reset();
  if (!same.is_scaled()) same.descale = Descale::per_head;
  return same;
}

double Problem::softmax_scale() const {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

namespace {

// How many keys after its own a query sees.
std::optional<int64_t> keys_after(const Problem& p) {
  return p.mask == Mask::none ? p.window_right : 0;
}

}  // namespace

RowRange Problem::visible_keys(int64_t query) const {
  const int64_t own = query + diagonal();
  RowRange keys{0, kv_len};
  if (window_left) keys.first = std::clamp<int64_t>(own - *window_left, 0, kv_len);
  if (const auto after = keys_after(*this)) {
    keys.end = std::clamp<int64_t>(own + *after + 1, 0, kv_len);
  }
  return keys;
}

RowRange Problem::queries_that_see(int64_t key) const {
  const int64_t own = key - diagonal();  // the query whose own key it is
  RowRange queries{0, q_len};
  if (const auto after = keys_after(*this)) {
    queries.first = std::clamp<int64_t>(own - *after, 0, q_len);
  }
  if (window_left) queries.end = std::clamp<int64_t>(own + *window_left + 1, 0, q_len);
  return queries;
}

RowRange Problem::seen_keys() const {
  if (q_len == 0) return {};
  return {visible_keys(0).first, visible_keys(q_len - 1).end};
}

int64_t Problem::unmasked_pairs() const {
  const auto after = keys_after(*this);
  const int64_t up_to_end =
      after ? pairs_up_to(q_len, kv_len, diagonal() + *after) : q_len * kv_len;
  const int64_t before_first =
      window_left ? pairs_up_to(q_len, kv_len, diagonal() - *window_left - 1) : 0;
  return up_to_end - before_first;
}

int64_t Problem::descales(int64_t heads, int64_t length) const {
  switch (descale) {
    case Descale::per_head:
      return kv_dtype ? heads : batch * heads;
    case Descale::per_tensor:
      return 1;
    case Descale::per_block:
      return batch * heads * ((length + kDescaleRows - 1) / kDescaleRows);
  }
  throw std::logic_error("no such descale");
}

int64_t Problem::factor_bytes() const {
  return static_cast<int64_t>(sizeof(float)) * (query_descales() + 2 * key_descales());
}

int64_t gemm_dims(Pass pass, int64_t head_dim, int64_t value_dim) {
  return pass == Pass::forward ? head_dim + value_dim : 3 * head_dim + 2 * value_dim;
}

int64_t Problem::unmasked_pairs_of_batch() const {
  return sum_of_requests([](const Problem& one) { return one.unmasked_pairs(); });
}

double Problem::flops() const {
  return 2.0 * static_cast<double>(gemm_dims(pass, head_dim, value_dim())) *
         static_cast<double>(unmasked_pairs_of_batch()) * static_cast<double>(q_heads);
}

double Problem::flops_convention() const {
  if (lengths) {
    return sum_of_requests([](const Problem& one) { return one.flops_convention(); });
  }
  const double passes = pass == Pass::forward ? 1.0 : 2.5;
  if (has_window()) {
    return 2.0 * static_cast<double>(head_dim + value_dim()) *
           static_cast<double>(unmasked_pairs()) * static_cast<double>(batch * q_heads) * passes;
  }
  const double all = 2.0 * static_cast<double>(batch * q_heads) * static_cast<double>(q_len) *
                     static_cast<double>(kv_len) * static_cast<double>(head_dim + value_dim());
  return all * (mask == Mask::none ? 1.0 : 0.5) * passes;
}

int64_t Problem::compulsory_bytes() const {
  const int64_t key_bytes = element_size(key_dtype()) * kv_heads * (head_dim + value_dim());
  // Requests share the factors of a K/V cache.
  const auto bytes_of_request = [](const Problem& one) {
    return one.compulsory_bytes() - one.factor_bytes();
  };
  if (is_paged()) {
    const auto keys = [&](int64_t b) { return request(b).seen_keys(); };
    const int64_t entries = sum_by_number([&](int64_t b) { return pages_with(keys(b)); });
    const int64_t repeated =
        sum_by_number([&](int64_t b) { return keys(b).size(); }) - distinct_rows(keys);
    return sum_of_requests(bytes_of_request) - key_bytes * repeated + kTableEntryBytes * entries +
           factor_bytes();
  }
  if (lengths) return sum_of_requests(bytes_of_request) + factor_bytes();
  return tensor_bytes() - key_bytes * batch * (kv_len - seen_keys().size());
}

int64_t Problem::kv_rows() const {
  if (!is_paged()) return kv_tokens();
  return distinct_rows([&](int64_t b) { return RowRange{0, kv_len_of(b)}; });
}

int64_t Problem::kv_bytes() const {
  const auto keys = [&](int64_t b) { return request(b).seen_keys(); };
  const int64_t rows =
      is_paged() ? distinct_rows(keys) : sum_by_number([&](int64_t b) { return keys(b).size(); });
  return element_size(key_dtype()) * kv_heads * (head_dim + value_dim()) * rows;
}

int64_t Problem::bytes_of_rows(int64_t queries, int64_t keys) const {
  if (has_scaled_keys()) {
    return element_size(dtype) * queries * head_dim +
           element_size(key_dtype()) * keys * (head_dim + value_dim()) +
           element_size(output_dtype()) * queries * value_dim() +
           static_cast<int64_t>(sizeof(float)) * queries + factor_bytes();
  }
  const int64_t of_each_shape = pass == Pass::forward ? 1 : 2;  // backward also the gradients
  return element_size(dtype) * of_each_shape * (queries + keys) * (head_dim + value_dim()) +
         static_cast<int64_t>(sizeof(float)) * queries;
}

int64_t Problem::tensor_bytes() const {
  const int64_t table = is_paged() ? kTableEntryBytes * batch * table_width() : 0;
  return bytes_of_rows(query_rows(), key_rows()) + table;
}

double Problem::padding() const {
  if (!is_padded() && !is_paged()) return 0;
  const int64_t keys_with = is_paged() ? kv_heads * used_pages() * *page_size : key_rows();
  const int64_t without = bytes_of_rows(q_heads * q_tokens(), kv_heads * kv_rows());
  return 1 -
         static_cast<double>(without) / static_cast<double>(bytes_of_rows(query_rows(), keys_with));
}

int64_t Problem::key_rows() const {
  if (is_paged()) return kv_heads * pool_pages() * *page_size;
  return kv_heads * (is_ragged() ? kv_tokens() : batch * kv_len);
}

std::optional<std::string> Problem::invalid() const {
  if (is_ragged() && !lengths) {
    return "layout ragged needs lengths, which say where each request begins";
  }
  const int64_t least_keys = lengths ? 0 : 1;
  if (batch < 1 || q_heads < 1 || kv_heads < 1 || q_len < 1 || kv_len < least_keys) {
    return fmt::format(
        "every size must be at least 1, got batch {}, q_heads {}, kv_heads {}, "
        "q_len {}, kv_len {}",
        batch, q_heads, kv_heads, q_len, kv_len);
  }
  if (q_heads % kv_heads != 0) {
    return fmt::format("q_heads must be a multiple of kv_heads, got {} and {}", q_heads, kv_heads);
  }
  for (const auto& [dim_name, dim] :
       {std::pair{"head_dim", head_dim}, {"head_dim_v", value_dim()}}) {
    if (dim < kHeadDimStep || dim > kMaxHeadDim || dim % kHeadDimStep != 0) {
      return fmt::format("{} must be a multiple of {} from {} to {}, got {}", dim_name,
                         kHeadDimStep, kHeadDimStep, kMaxHeadDim, dim);
    }
  }
  if (window_left.value_or(0) < 0 || window_right.value_or(0) < 0) {
    return fmt::format("windows must be at least 0, got window_left {}, window_right {}",
                       window_left.value_or(0), window_right.value_or(0));
  }
  if (scale && !std::isfinite(*scale)) {
    return fmt::format("scale must be finite, got {}", *scale);
  }
  if (gpus && (*gpus < 2 || *gpus > kMaxGpus)) {
    return fmt::format("gpus must be from 2 to {}, got {}", kMaxGpus, *gpus);
  }
  if (!gpus && split != Split::zigzag) return "split needs gpus";
  if (const auto wrong = invalid_quantized()) return wrong;
  if (const auto wrong = invalid_kv_dtype()) return wrong;
  return invalid_pages();
}

std::optional<std::string> Problem::invalid_quantized() const {
  if (descale != Descale::per_head && !has_scaled_keys()) {
    return "descale needs dtype or kv_dtype e4m3";
  }
  if (!is_quantized()) return std::nullopt;
  const std::string what = is_scaled() ? "dtype e4m3" : "quantize";
  if (quantize != Quantize::none) {
    if (dtype != Dtype::bf16) return "quantize needs dtype bf16";
    if (recipe_of(quantize).hadamard && !has_hadamard(head_dim)) {
      return fmt::format(
          "quantize {} needs a head_dim that is a power of two, or 12 times one, got {}",
          name(quantize), head_dim);
    }
  }
  if (pass == Pass::backward) return what + " has no backward pass";
  if (lengths) return what + " takes requests of equal lengths only";
  if (is_paged()) return what + " takes K and V without pages only";
  if (gpus) return what + " is computed by one device";
  return std::nullopt;
}

std::optional<std::string> Problem::invalid_kv_dtype() const {
  if (!kv_dtype) return std::nullopt;
  if (dtype != Dtype::fp16 && dtype != Dtype::bf16) return "kv_dtype needs dtype fp16 or bf16";
  if (descale == Descale::per_block) {
    return "kv_dtype has one factor for each K/V head, or one for all: descale per_block needs "
           "dtype e4m3";
  }
  if (quantize != Quantize::none) return "kv_dtype and quantize cannot be combined";
  if (pass == Pass::backward) return "kv_dtype has no backward pass";
  if (gpus) return "kv_dtype is computed by one device";
  return std::nullopt;
}

std::string Problem::id() const {
  std::string text =
      fmt::format("{}/{}/{}/{}/b{}/hq{}/hkv{}/q{}/k{}/d{}", name(pass), name(dtype), name(mask),
                  name(layout), batch, q_heads, kv_heads, q_len, kv_len, head_dim);
  if (scale) text += fmt::format("/scale{}", *scale);
  return text;
}

}  // namespace flashbench
