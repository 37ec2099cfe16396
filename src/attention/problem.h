// What is asked of an attention implementation: shapes, types and mask of one problem, and the work
// and traffic that follow from them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "attention/block_table.h"
#include "attention/enum_names.h"
#include "attention/lengths.h"

namespace flashbench {

enum class Pass { forward, backward };
// e4m3: Q, K and V are bytes, which mean themselves times a factor (Descale).
enum class Dtype { fp32, fp16, bf16, e4m3 };
enum class Mask { none, causal_top_left, causal_bottom_right };
enum class Layout { bshd, bhsd, ragged };  // attention/tensors.h

// A pool of pages in memory, K and V each: [pages, page_size, heads, dim] or [pages, heads,
// page_size, dim].
enum class KvLayout { paged_nhd, paged_hnd };

// Which pages of the pool the requests have (inputs/page_order.h).
enum class PageOrder { shuffled, linear, reversed };

// Which tokens the devices have that share a problem (attention/token_split.h); keys: which keys
// (attention/key_split.h).
enum class Split { zigzag, contiguous, keys };

// What has a factor of its own in each tensor of e4m3: a head of a request (in a K/V cache of e4m3:
// a head, of all requests), the whole tensor, or kDescaleRows rows of a head.
enum class Descale { per_head, per_tensor, per_block };
inline constexpr int64_t kDescaleRows = 128;

// How a provider rounds the inputs of dtype bf16 to bytes before it computes (attention/recipe.h).
enum class Quantize {
  none,
  e4m3_tensor,
  e4m3_head,
  e4m3_block,
  e4m3_block_smooth_k,
  e4m3_tensor_hadamard,
  e4m3_block_hadamard,
  e4m3_block_hadamard_smooth_k,
  int8_qk,
};

// The names are those in configs, on the command line and in every result file.
template <>
inline constexpr auto kNames<Pass> = names_of<Pass>({{Pass::forward, "forward"},
                                                     {Pass::backward, "backward"}});
inline constexpr auto kPasses = values_of<Pass>();
template <>
inline constexpr auto kNames<Dtype> = names_of<Dtype>(
    {{Dtype::fp32, "fp32"}, {Dtype::fp16, "fp16"}, {Dtype::bf16, "bf16"}, {Dtype::e4m3, "e4m3"}});
inline constexpr auto kDtypes = values_of<Dtype>();
// Those whose elements mean themselves, without a factor.
inline constexpr std::array kUnscaledDtypes{Dtype::fp32, Dtype::fp16, Dtype::bf16};
// What a K/V cache can be stored in beside Q's dtype (Problem::kv_dtype).
inline constexpr std::array kKvDtypes{Dtype::e4m3};
template <>
inline constexpr auto kNames<Mask> = names_of<Mask>({{Mask::none, "none"},
                                                     {Mask::causal_top_left, "causal_top_left"},
                                                     {Mask::causal_bottom_right,
                                                      "causal_bottom_right"}});
inline constexpr auto kMasks = values_of<Mask>();
template <>
inline constexpr auto kNames<Layout> =
    names_of<Layout>({{Layout::bshd, "bshd"}, {Layout::bhsd, "bhsd"}, {Layout::ragged, "ragged"}});
inline constexpr auto kLayouts = values_of<Layout>();
template <>
inline constexpr auto kNames<KvLayout> = names_of<KvLayout>({{KvLayout::paged_nhd, "paged_nhd"},
                                                             {KvLayout::paged_hnd, "paged_hnd"}});
inline constexpr auto kKvLayouts = values_of<KvLayout>();
template <>
inline constexpr auto kNames<PageOrder> = names_of<PageOrder>({{PageOrder::shuffled, "shuffled"},
                                                               {PageOrder::linear, "linear"},
                                                               {PageOrder::reversed, "reversed"}});
inline constexpr auto kPageOrders = values_of<PageOrder>();
template <>
inline constexpr auto kNames<Split> = names_of<Split>({{Split::zigzag, "zigzag"},
                                                       {Split::contiguous, "contiguous"},
                                                       {Split::keys, "keys"}});
inline constexpr auto kSplits = values_of<Split>();
template <>
inline constexpr auto kNames<Descale> = names_of<Descale>({{Descale::per_head, "per_head"},
                                                           {Descale::per_tensor, "per_tensor"},
                                                           {Descale::per_block, "per_block"}});
inline constexpr auto kDescales = values_of<Descale>();
template <>
inline constexpr auto kNames<Quantize> =
    names_of<Quantize>({{Quantize::none, "none"},
                        {Quantize::e4m3_tensor, "e4m3_tensor"},
                        {Quantize::e4m3_head, "e4m3_head"},
                        {Quantize::e4m3_block, "e4m3_block"},
                        {Quantize::e4m3_block_smooth_k, "e4m3_block_smooth_k"},
                        {Quantize::e4m3_tensor_hadamard, "e4m3_tensor_hadamard"},
                        {Quantize::e4m3_block_hadamard, "e4m3_block_hadamard"},
                        {Quantize::e4m3_block_hadamard_smooth_k, "e4m3_block_hadamard_smooth_k"},
                        {Quantize::int8_qk, "int8_qk"}});
inline constexpr auto kQuantizes = values_of<Quantize>();
// Those in which every request has as many rows, padded where lengths differ.
inline constexpr std::array kDenseLayouts{Layout::bshd, Layout::bhsd};

// Bytes of one element.
int64_t element_size(Dtype);

// Largest head_dim; every head_dim is a multiple of kHeadDimStep. The same holds for head_dim_v.
inline constexpr int64_t kMaxHeadDim = 256;
inline constexpr int64_t kHeadDimStep = 8;

// The dimensions that the GEMMs of a pass go over for each (query, key) pair of a head. Forward:
// head_dim for QK^T, value_dim for PV. Backward: head_dim for QK^T, dS K and dS^T Q, value_dim for
// dO V^T and P^T dO.
int64_t gemm_dims(Pass, int64_t head_dim, int64_t value_dim);

// The most devices that share a problem.
inline constexpr int64_t kMaxGpus = 64;

// Rows [first, end) of a head: of keys or of queries.
struct RowRange {
  int64_t first = 0, end = 0;

  int64_t size() const { return end - first; }
  bool empty() const { return first == end; }
  bool contains(int64_t row) const { return row >= first && row < end; }

  bool operator==(const RowRange&) const = default;
};

struct Problem {
  Pass pass = Pass::forward;
  Dtype dtype = Dtype::fp32;
  Mask mask = Mask::none;
  Layout layout = Layout::bshd;
  int64_t batch = 1;
  int64_t q_heads = 1;
  int64_t kv_heads = 1;  // divides q_heads; query head h reads K/V head h / (q_heads / kv_heads)
  int64_t q_len = 1;
  int64_t kv_len = 1;
  int64_t head_dim = 64;  // of Q, K, dQ and dK; of V, O, dV and dO, unless head_dim_v is set

  // Of V, O, dV and dO, e.g. 128 beside a head_dim of 192.
  std::optional<int64_t> head_dim_v = std::nullopt;
  int64_t value_dim() const { return head_dim_v.value_or(head_dim); }
  // Where the two are one, head_dim_v stays unset, so that a problem has one key. Set head_dim
  // first.
  void set_value_dim(int64_t dim) {
    head_dim_v = dim == head_dim ? std::nullopt : std::optional(dim);
  }

  // Softmax scale: S = softmax_scale() * Q K^T; 1/sqrt(head_dim) unless `scale` is set.
  std::optional<double> scale = std::nullopt;
  double softmax_scale() const;

  // A sliding window: how many keys before and after its own (see diagonal()) a query sees; absent:
  // all of them. FlashAttention's window_size=(left, right) of flash_attn_func.
  std::optional<int64_t> window_left = std::nullopt;
  std::optional<int64_t> window_right = std::nullopt;
  bool has_window() const { return window_left || window_right; }

  // The lengths of each request, where they differ; null where every request has q_len queries and
  // kv_len keys. Then `batch` is the number of requests, and q_len and kv_len are the longest
  // (set_lengths). The mask and the window hold for each request by itself: what is said of a
  // query or a key below is asked of request(b), and of a whole batch only where lengths are equal.
  std::shared_ptr<const Lengths> lengths = nullptr;
  void set_lengths(std::shared_ptr<const Lengths>);

  // Layout ragged: the rows of the requests lie behind each other (FlashAttention's varlen). In the
  // other layouts they are padded to the longest: rows behind a request's end are no part of the
  // problem. Nothing may read them into a result, and what is written there does not count.
  bool is_ragged() const { return layout == Layout::ragged; }
  bool is_padded() const { return lengths && !is_ragged(); }

  // Request b by itself: a problem of batch 1 and equal lengths, without pages. Its lengths may be
  // 0.
  Problem request(int64_t b) const;
  int64_t q_len_of(int64_t b) const { return lengths ? lengths->queries().count(b) : q_len; }
  int64_t kv_len_of(int64_t b) const { return lengths ? lengths->keys().count(b) : kv_len; }

  // How many devices share the problem, each with a part of the tokens; absent: it is one device's.
  // On a CPU groups of threads stand for GPUs. What is computed does not depend on it.
  std::optional<int64_t> gpus = std::nullopt;
  Split split = Split::zigzag;
  Problem of_one_device() const;  // the same for one alone

  // The dtype of K and V where it is not that of Q: a K/V cache of e4m3 beside Q and O of 16 bits,
  // for the forward pass. The products are of 16 bits: each byte is exact in them.
  std::optional<Dtype> kv_dtype = std::nullopt;
  Dtype key_dtype() const { return kv_dtype.value_or(dtype); }

  // Of tensors of e4m3, for the forward pass: what has a factor (attention/tensors.h).
  Descale descale = Descale::per_head;
  bool is_scaled() const { return dtype == Dtype::e4m3; }
  bool has_scaled_keys() const { return key_dtype() == Dtype::e4m3; }

  // The same with K and V in Q's dtype, as they were before they were rounded.
  Problem without_kv_dtype() const;

  // A recipe by which the provider rounds Q, K and V of dtype bf16 to bytes, as part of its work: O
  // and the logsumexp are those of the problem with the rounded inputs.
  Quantize quantize = Quantize::none;

  // Whether the products are of bytes.
  bool is_quantized() const { return is_scaled() || quantize != Quantize::none; }

  // Of O: a sum of many values is stored in more bits than each of them.
  Dtype output_dtype() const { return is_scaled() ? Dtype::bf16 : dtype; }

  // The factors of Q, and of K or V.
  int64_t query_descales() const { return is_scaled() ? descales(q_heads, q_len) : 0; }
  int64_t key_descales() const { return has_scaled_keys() ? descales(kv_heads, kv_len) : 0; }

  // A paged K/V cache, for the forward pass: K and V lie in pages of page_size rows, anywhere in a
  // pool, and a block table says which pages hold a request's rows. Absent: no pages. `layout` is
  // then that of Q and O alone. Pages that no request has, and the rows of a last page behind the
  // request's end, are no part of the problem, like padding.
  std::optional<int64_t> page_size = std::nullopt;
  KvLayout kv_layout = KvLayout::paged_nhd;
  PageOrder page_order = PageOrder::shuffled;
  std::optional<int64_t> shared_prefix = std::nullopt;  // rows; the requests share its full pages
  std::shared_ptr<const BlockTable> block_table = nullptr;  // in place of those two
  bool is_paged() const { return page_size.has_value(); }
  bool shares_pages() const;  // whether a page has a place in two requests, or two in one

  // Pages of a request, and of these rows of one, 0 without pages; pages that any request has;
  // pages of the pool, of which a fifth is unused unless a table is given.
  int64_t pages_of(int64_t b) const { return pages_with({0, kv_len_of(b)}); }
  int64_t pages_with(RowRange rows) const;
  int64_t used_pages() const;
  int64_t pool_pages() const;

  // The table that is given, or that of the page order `linear`: request after request, shared
  // pages first. Its width is one more than any request needs, so that an entry behind every
  // request's last page is no page.
  BlockTable linear_table() const;
  int64_t table_width() const;

  // The order of the dimensions of K and V in memory. In a pool, a page takes the place of a
  // request.
  Layout pool_layout() const {
    return kv_layout == KvLayout::paged_nhd ? Layout::bshd : Layout::bhsd;
  }
  Layout key_layout() const { return is_paged() ? pool_layout() : layout; }

  // The sum of a number of each request: of(its number), of(Problem of the request).
  template <typename Of>
  auto sum_by_number(const Of& of) const {
    auto sum = of(int64_t{0});
    if (!lengths) return sum * static_cast<decltype(sum)>(batch);
    for (int64_t b = 1; b < batch; ++b) sum += of(b);
    return sum;
  }
  template <typename Of>
  auto sum_of_requests(const Of& of) const {
    return sum_by_number([&](int64_t b) { return of(request(b)); });
  }

  // Queries and keys of all requests, without padding.
  int64_t q_tokens() const { return lengths ? lengths->queries().total() : batch * q_len; }
  int64_t kv_tokens() const { return lengths ? lengths->keys().total() : batch * kv_len; }

  // The queries of all requests before b, without padding.
  int64_t first_query(int64_t b) const { return lengths ? lengths->queries().first(b) : b * q_len; }

  int64_t heads_per_kv_head() const { return q_heads / kv_heads; }

  // The number of a query's own key, less that of the query. The diagonal ends in the bottom right
  // corner (own key = query + kv_len - q_len), or for causal_top_left starts in the top left one
  // (own key = query). Throws std::logic_error for a batch of different lengths, which has one for
  // each request.
  int64_t diagonal() const {
    if (lengths) throw std::logic_error("each request has a diagonal of its own");
    return mask == Mask::causal_top_left ? 0 : kv_len - q_len;
  }

  // The keys that query row `query` attends to: those in its window and, causal, none after its
  // own. Both ends rise with the query, and no key between two queries' keys is left out. Empty for
  // a row that sees none: its O is 0 and its logsumexp -inf.
  RowRange visible_keys(int64_t query) const;

  // The inverse: the queries that see `key`.
  RowRange queries_that_see(int64_t key) const;

  // The keys that any query sees.
  RowRange seen_keys() const;

  // Whether anything can be masked, by the mask or by a window.
  bool is_masked() const { return mask != Mask::none || has_window(); }

  // Unmasked (query, key) pairs of one head of one request, exact.
  int64_t unmasked_pairs() const;

  // The same of all requests, of one head.
  int64_t unmasked_pairs_of_batch() const;

  // Matrix-multiply FLOPs over the unmasked pairs: 2 * gemm_dims for each.
  double flops() const;

  // FlashAttention's convention: 2*B*H*q_len*kv_len*(head_dim + value_dim), halved if causal, x2.5
  // backward; with a window the unmasked pairs in place of q_len*kv_len (its
  // hopper/benchmark_attn.py).
  double flops_convention() const;

  // Bytes that any implementation must move: each input read once, each output written once; of K
  // and V only what some query sees; no padding. Of pages: each row once, however many
  // requests share it, and the requests' entries of the block table.
  // Forward: Q, K, V; O, logsumexp. Backward: Q, K, V, O, dO, logsumexp; dQ, dK, dV.
  int64_t compulsory_bytes() const;

  // Rows of K that hold a key of any request, in each head; a row that requests share counts once.
  int64_t kv_rows() const;

  // The bytes of K and V in compulsory_bytes of a forward pass.
  int64_t kv_bytes() const;

  // Bytes of all tensors of the pass, padding, unused pages and the block table included.
  int64_t tensor_bytes() const;

  // The share of the tensors that is padding, or the rest of a request's last page. Unused pages do
  // not count.
  double padding() const;

  // Elements of Q (and dQ), of O (and dO), of K (and dK), of V (and dV) and of the logsumexp,
  // padding included.
  int64_t query_elements() const { return query_rows() * head_dim; }
  int64_t output_elements() const { return query_rows() * value_dim(); }
  int64_t key_elements() const { return key_rows() * head_dim; }
  int64_t value_elements() const { return key_rows() * value_dim(); }
  int64_t query_rows() const { return q_heads * (is_ragged() ? q_tokens() : batch * q_len); }
  int64_t key_rows() const;

  // The index of a query row in the logsumexp: [batch, q_heads, q_len], or ragged [q_heads,
  // tokens], as FlashAttention has it.
  int64_t query_index(int64_t b, int64_t head, int64_t row) const {
    return is_ragged() ? head * q_tokens() + lengths->queries().first(b) + row
                       : (b * q_heads + head) * q_len + row;
  }

  // A sentence that says what is wrong with the shapes; empty for a valid problem.
  std::optional<std::string> invalid() const;

  // The same of the block table that is given, once the lengths and the page size are known.
  std::optional<std::string> invalid_table() const;

  // Stable text key, e.g. "forward/fp32/none/bshd/b2/hq8/hkv8/q1024/k1024/d64".
  std::string id() const;

  bool operator==(const Problem&) const = default;

 private:
  std::optional<std::string> invalid_pages() const;
  std::optional<std::string> invalid_quantized() const;
  std::optional<std::string> invalid_kv_dtype() const;
  double most_pages() const;

  // The factors of a tensor of e4m3 with so many heads, of so many rows; bytes of all factors.
  int64_t descales(int64_t heads, int64_t length) const;
  int64_t factor_bytes() const;

  // Full pages of the shared prefix that a request has, or any.
  int64_t shared_pages(int64_t rows) const;

  // Bytes of the tensors of a pass with so many rows of Q and O, and of K and V.
  int64_t bytes_of_rows(int64_t queries, int64_t keys) const;

  // Rows of the pool that hold any of the rows(b) of each request.
  int64_t distinct_rows(const std::function<RowRange(int64_t)>& rows) const;
};

// How Q, K, V and dO are filled (inputs/inputs.h). The second and third row are adversarial: for
// most of them more is known of the outputs than that they are close (verify/expectation.h).
enum class Distribution {
  normal,
  uniform,
  outliers,
  mean_v,
  channel_offsets,
  files,
  equal_scores,
  one_hot,
  late_maximum,
  low_logsumexp,
  huge_scores,
  nan_key,
  inf_key,
  nan_unseen,
  nan_v_padding,
  subnormals,
};
template <>
inline constexpr auto kNames<Distribution> =
    names_of<Distribution>({{Distribution::normal, "normal"},
                            {Distribution::uniform, "uniform"},
                            {Distribution::outliers, "outliers"},
                            {Distribution::mean_v, "mean_v"},
                            {Distribution::channel_offsets, "channel_offsets"},
                            {Distribution::files, "files"},
                            {Distribution::equal_scores, "equal_scores"},
                            {Distribution::one_hot, "one_hot"},
                            {Distribution::late_maximum, "late_maximum"},
                            {Distribution::low_logsumexp, "low_logsumexp"},
                            {Distribution::huge_scores, "huge_scores"},
                            {Distribution::nan_key, "nan_key"},
                            {Distribution::inf_key, "inf_key"},
                            {Distribution::nan_unseen, "nan_unseen"},
                            {Distribution::nan_v_padding, "nan_v_padding"},
                            {Distribution::subnormals, "subnormals"}});
inline constexpr auto kDistributions = values_of<Distribution>();

// How the tensors lie in memory (device/placed_tensor.h): dense and aligned; with gaps between
// rows, heads and batches; dense, one element past an aligned address.
enum class Placement { contiguous, strided, offset };
template <>
inline constexpr auto kNames<Placement> = names_of<Placement>({{Placement::contiguous,
                                                                "contiguous"},
                                                               {Placement::strided, "strided"},
                                                               {Placement::offset, "offset"}});
inline constexpr auto kPlacements = values_of<Placement>();

}  // namespace flashbench
