#include "providers/cudnn_graph.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <vector>

#include "attention/accumulator.h"
#include "attention/pages.h"
#include "device/cudnn_library.h"

// The frontend finds cuDNN's entry points through this handle.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace flashbench {

namespace {

namespace fe = cudnn_frontend;

// Extracts the reason from cuDNN's message, on one line. For a graph that no engine takes, the
// message lists for one engine after the other its settings, warnings with a reason each, and
// source locations.
std::string reason_in(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  constexpr std::string_view kReason = "Reason: ";
  if (const size_t at = text.find(kReason); at != std::string::npos) {
    text.erase(0, at + kReason.size());
    for (const char* next : {" Warning: ", " Error: ", " at: "}) {
      text.resize(std::min(text.size(), text.find(next)));
    }
  }
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string told(const std::string& text) {
  return fmt::format("cuDNN {}: {}", cudnn_library().version, reason_in(text));
}

void check(fe::error_t error) {
  if (error.is_bad()) throw CudnnError(told(error.get_message()));
}

// Checks a step whose failure means that cuDNN does not support this problem.
void check_supported(fe::error_t error) {
  if (error.is_bad()) throw Unsupported(told(error.get_message()));
}

void check(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw CudnnError(told(fmt::format("{}: {}", fe::detail::get_error_string(status),
                                    fe::detail::get_last_error_string_())));
}

class Handle {
 public:
  Handle() { check(fe::detail::create_handle(&handle_)); }
  ~Handle() { fe::detail::destroy_handle(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

// The tensors of a pass; the numbers identify them in the graph. The offsets of a ragged tensor
// have its number and kOffsets, the block table of a paged one its number and kTable.
enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kDO,
  kLogsumexp,
  kDQ,
  kDK,
  kDV,
  kQLen,
  kKvLen,
  kQDescale,
  kKDescale,
  kVDescale,
  kPScale,
  kPDescale,
  kOScale,
  kMostP,
  kMostO
};
constexpr int64_t kOffsets = 100, kTable = 200;

// The numbers of a graph on bytes, beside the factors of Q and K, which are inputs. P is at most 1,
// and is multiplied before it is rounded, so that it uses the range of e4m3. O is multiplied by V's
// factor and divided by its own, which is the same (output_format): cuDNN gets 1 for both. It
// insists on writing the largest magnitudes of P and O.
struct Scalar {
  Uid uid;
  float value;
};
constexpr float kScaleOfP = 1 << Accumulator{}.p_exponent;
constexpr std::array kScalars{Scalar{kPScale, kScaleOfP}, Scalar{kPDescale, 1 / kScaleOfP},
                              Scalar{kVDescale, 1},       Scalar{kOScale, 1},
                              Scalar{kMostP, 0},          Scalar{kMostO, 0}};
constexpr size_t kScalarStep = 4;  // 16 bytes, as cuDNN expects every tensor to be aligned

struct Tensor {
  Uid uid;
  ConstTensorView view;

  // A ragged tensor has the batch stride of requests as long as the longest: it counts if all are.
  std::vector<int64_t> strides() const {
    const int64_t batch = view.ragged == nullptr || view.is_paged() ? view.batch_stride
                                                                    : view.length * view.row_stride;
    return {batch, view.head_stride, view.row_stride, 1};
  }
  bool of_keys() const { return uid == kK || uid == kV || uid == kDK || uid == kDV; }
};

std::vector<Tensor> tensors_of(Pass pass, const Inputs& in, const Outputs& out) {
  if (pass == Pass::forward) return {{kQ, in.q}, {kK, in.k}, {kV, in.v}, {kO, out.o}};
  return {{kQ, in.q},    {kK, in.k},    {kV, in.v},    {kO, in.o},
          {kDO, in.d_o}, {kDQ, out.dq}, {kDK, out.dk}, {kDV, out.dv}};
}

std::vector<std::vector<int64_t>> strides_of(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<int64_t>> strides;
  for (const Tensor& tensor : tensors) {
    strides.push_back(tensor.strides());
    strides.back().push_back(tensor.view.pages.stride);
  }
  return strides;
}

fe::DataType_t data_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp32:
      return fe::DataType_t::FLOAT;
    case Dtype::fp16:
      return fe::DataType_t::HALF;
    case Dtype::bf16:
      return fe::DataType_t::BFLOAT16;
    case Dtype::e4m3:
      return fe::DataType_t::FP8_E4M3;
  }
  return fe::DataType_t::NOT_SET;
}

// What the masks of the requests need.
struct Bounds {
  bool hides_first = false, hides_last = false, off_diagonal = false;

  explicit Bounds(const Problem& p) {
    for (int64_t b = 0; b < (p.lengths ? p.batch : 1); ++b) {
      const Problem request = p.request(b);
      if (request.q_len == 0) continue;
      hides_first |= request.visible_keys(request.q_len - 1).first > 0;
      hides_last |= request.visible_keys(0).end < request.kv_len;
      off_diagonal |= request.diagonal() != 0;
    }
  }
};

// The attributes that forward and backward share. For bounds, and for the bottom right corner,
// cuDNN uses other, slower engines, and some of them refuse it. So a bound that hides nothing is
// left out, and the top left corner is named if both coincide. cuDNN's left bound counts a query's
// own key (docs/operations/Attention.md of cudnn-frontend).
template <typename Attributes>
Attributes attributes_of(const Problem& p) {
  Attributes attributes;
  attributes.set_attn_scale(static_cast<float>(p.softmax_scale()));
  const auto [hides_first, hides_last, off_diagonal] = Bounds(p);
  if (!hides_first && !hides_last) return attributes;
  attributes.set_diagonal_alignment(off_diagonal ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                 : fe::DiagonalAlignment_t::TOP_LEFT);
  if (hides_first) attributes.set_diagonal_band_left_bound(static_cast<int>(*p.window_left + 1));
  if (hides_last) {
    attributes.set_diagonal_band_right_bound(
        p.mask == Mask::none ? static_cast<int>(*p.window_right) : 0);
  }
  return attributes;
}

// Arrays of integers for the device, one behind the other, each aligned as cuDNN expects it.
class Arrays {
 public:
  template <typename Number>
  void add(int64_t uid, int64_t count, const Number& number) {
    places_.emplace_back(uid, numbers_.size());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = number(i);
      if (value > std::numeric_limits<int32_t>::max()) {
        throw Unsupported("its ragged tensors begin after 2^31 elements, and offsets are 32 bits");
      }
      numbers_.push_back(static_cast<int32_t>(value));
    }
    numbers_.resize((numbers_.size() + kStep - 1) / kStep * kStep);
  }

  const std::vector<int32_t>& numbers() const { return numbers_; }

  void add_addresses(const int32_t* numbers, std::unordered_map<int64_t, void*>& addresses) const {
    for (const auto& [uid, first] : places_) {
      addresses[uid] = const_cast<int32_t*>(numbers) + first;
    }
  }

 private:
  static constexpr size_t kStep = 64;  // 256 bytes

  std::vector<int32_t> numbers_;
  std::vector<std::pair<int64_t, size_t>> places_;
};

// Whether each request has one query, as in decoding.
bool one_query_each(const Problem& p) {
  return p.q_len == 1 && p.q_tokens() == p.batch;
}

bool has_queries_without_keys(const Problem& p) {
  for (int64_t b = 0; p.lengths && b < p.batch; ++b) {
    if (p.q_len_of(b) > 0 && p.kv_len_of(b) == 0) return true;
  }
  return false;
}

// Throws Unsupported for pages from which cuDNN takes NaN that is no part of the problem (9.19):
// its engines for more than one query load whole pages and whole tiles, and multiply by 0 what is
// behind the last key. In place of a page behind the table's last column they load the one with the
// number of all entries, which the pool may have.
void refuse_pages_that_fail(const Problem& p) {
  if (p.q_len == 1 || *p.page_size == 1) return;
  for (int64_t b = 0; b < p.batch; ++b) {
    if (p.kv_len_of(b) % *p.page_size == 0) continue;
    throw Unsupported(
        told("with more than one query, NaN behind a request's last key in its page gets into O"));
  }
  constexpr int64_t kTile = 128;  // keys
  const int64_t columns = p.pages_with({0, p.kv_len});
  if (p.kv_len % kTile != 0 && p.batch * columns < p.pool_pages()) {
    throw Unsupported(
        told(fmt::format("with more than one query, and a longest request that is no multiple of "
                         "{} keys, NaN in page {} of the pool gets into O",
                         kTile, p.batch * columns)));
  }
}

// Throws Unsupported for masks of bytes that the frontend refuses with a sentence that does not
// name them.
void refuse_masks_of_bytes(const Problem& p, int compute_capability) {
  const Bounds bounds(p);
  if (!bounds.hides_last || !bounds.off_diagonal || compute_capability >= 100) return;
  throw Unsupported(
      told("before compute capability 10.0 a mask of bytes must begin in the top left corner"));
}

// Throws Unsupported for what cuDNN accepts, and fails or computes wrongly.
void refuse_what_fails(const Problem& p) {
  // The worker ends with a floating point exception (9.19).
  if (p.kv_len == 0) throw Unsupported(told("there has to be a key in the batch"));
  if (p.pass == Pass::backward) return;
  if (p.is_paged()) refuse_pages_that_fail(p);
  // The tests of cudnn-frontend leave out lengths of 0 up to that version.
  constexpr size_t kTakesNoKeys = 92500;
  if (has_queries_without_keys(p) && fe::detail::get_backend_version() < kTakesNoKeys) {
    throw Unsupported(told("before 9.25 queries of a request without keys get NaN"));
  }
  // Its engine for one query writes only the first head of each group (9.19).
  const bool grouped = p.heads_per_kv_head() > 1;
  if (p.is_ragged() && p.q_len == 1 && grouped && !one_query_each(p)) {
    throw Unsupported(
        told("a packed logsumexp of grouped heads stays incomplete if a request has no query and "
             "the others have one"));
  }
}

class Graph final : public CudnnGraph {
 public:
  Graph(const Problem& p, bool deterministic, int compute_capability,
        const std::vector<Tensor>& tensors)
      : problem_(p), strides_(strides_of(tensors)) {
    graph_.set_io_data_type(data_type(p.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(compute_capability);
    if (p.pass == Pass::backward) {
      add_backward(tensors, deterministic);
    } else if (p.is_scaled()) {
      add_forward_of_bytes(tensors);
    } else {
      add_forward(tensors);
    }
    check_supported(graph_.validate());
    check_supported(graph_.build_operation_graph(handle_.get()));
    check_supported(graph_.create_execution_plans({fe::HeurMode_t::A}));
    check_supported(graph_.check_support());
  }

  void build_plan(void* stream) override {
    check(fe::detail::set_stream(handle_.get(), static_cast<cudaStream_t>(stream)));
    check_supported(graph_.build_plans());
  }

  std::string plan_name() const override {
    std::string name;
    check(graph_.get_plan_name(name));
    return name;
  }

  int64_t workspace_bytes() const override {
    int64_t bytes = 0;
    check(graph_.get_workspace_size(bytes));
    return bytes;
  }

  bool fits(const Inputs& in, const Outputs& out) const override {
    return strides_of(tensors_of(problem_.pass, in, out)) == strides_;
  }

  const std::vector<int32_t>& lengths() const override { return arrays_.numbers(); }
  const std::vector<float>& scalars() const override { return scalars_; }

  void run(const Inputs& in, const Outputs& out, const int32_t* lengths, float* scalars,
           void* workspace) override {
    std::unordered_map<int64_t, void*> addresses;
    arrays_.add_addresses(lengths, addresses);
    if (problem_.is_scaled()) {
      addresses[kQDescale] = const_cast<float*>(in.q.descales.data);
      addresses[kKDescale] = const_cast<float*>(in.k.descales.data);
      for (const Scalar& scalar : kScalars) {
        addresses[scalar.uid] = scalars;
        scalars += kScalarStep;
      }
    }
    for (const Tensor& tensor : tensors_of(problem_.pass, in, out)) {
      addresses[tensor.uid] = const_cast<void*>(tensor.view.data);
      if (!tensor.view.is_paged()) continue;
      addresses[tensor.uid + kTable] = const_cast<int32_t*>(tensor.view.pages.table);
    }
    addresses[kLogsumexp] =
        problem_.pass == Pass::forward ? out.logsumexp : const_cast<float*>(in.logsumexp);
    check(graph_.execute(handle_.get(), addresses, workspace));
  }

 private:
  using Node = std::shared_ptr<fe::graph::Tensor_attributes>;

  std::vector<int64_t> sizes_of(const Tensor& tensor) const {
    const ConstTensorView view =
        tensor.view.is_paged() ? pool_view(tensor.view, problem_) : tensor.view;
    return {view.batch, view.heads, view.length, view.head_dim};
  }

  void describe(fe::graph::Tensor_attributes& attributes, const Tensor& tensor) {
    attributes.set_uid(tensor.uid).set_dim(sizes_of(tensor)).set_stride(tensor.strides());
    if (tensor.view.is_paged()) return;
    if (!problem_.lengths || (!tensor.of_keys() && one_query_each(problem_))) return;
    const RequestRows* packed = tensor.view.ragged;
    set_offsets(attributes, [&](int64_t b) {
      return packed != nullptr ? packed->first(b) * tensor.view.row_stride
                               : b * tensor.view.batch_stride;
    });
  }

  // Says where request b begins, at first(b). Padded requests have offsets too: without them, cuDNN
  // multiplies the rows behind a request's end by 0, which is NaN if they are. Single queries need
  // none, and must not have any: see refuse_what_fails().
  template <typename First>
  void set_offsets(fe::graph::Tensor_attributes& attributes, const First& first) {
    const int64_t uid = attributes.get_uid() + kOffsets;
    attributes.set_ragged_offset(integers(uid, problem_.batch + 1));
    arrays_.add(uid, problem_.batch + 1, first);
  }

  Node integers(int64_t uid, int64_t count) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_data_type(fe::DataType_t::INT32)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1}));
  }

  // cuDNN takes as many entries of a row as the longest request needs; the table may be wider.
  Node block_table(const Tensor& tensor) {
    const int64_t stride = tensor.view.pages.stride;
    return graph_.tensor(
        fe::graph::Tensor_attributes()
            .set_uid(tensor.uid + kTable)
            .set_data_type(fe::DataType_t::INT32)
            .set_dim({problem_.batch, 1, problem_.pages_with({0, problem_.kv_len}), 1})
            .set_stride({stride, stride, 1, 1}));
  }

  Node input(const Tensor& tensor) {
    fe::graph::Tensor_attributes attributes;
    describe(attributes, tensor);
    return graph_.tensor(attributes);
  }

  void set_output(const Node& node, const Tensor& tensor) {
    describe(node->set_output(true), tensor);
  }

  // [batch, q_heads, q_len, 1], dense; ragged as run() says.
  void describe_logsumexp(fe::graph::Tensor_attributes& attributes) {
    const Problem& p = problem_;
    const bool by_token = p.is_ragged() && p.pass == Pass::backward;
    const int64_t rows = p.is_ragged() ? p.q_tokens() : p.q_len;
    const int64_t row_stride = by_token ? p.q_heads : 1;
    const int64_t batch_stride = p.is_ragged() ? p.q_len * row_stride : p.q_heads * p.q_len;
    attributes.set_uid(kLogsumexp)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({p.batch, p.q_heads, p.q_len, 1})
        .set_stride({batch_stride, by_token ? 1 : rows, row_stride, 1});
    if (p.is_ragged() && !one_query_each(p)) {
      set_offsets(attributes, [&](int64_t b) { return p.first_query(b) * row_stride; });
    }
  }

  // cuDNN masks the keys behind a request's end, and skips queries there. Paged keys have lengths
  // even where all are equal.
  template <typename Attributes>
  void set_lengths(Attributes& attributes) {
    if (!problem_.lengths && !problem_.is_paged()) return;
    const int64_t batch = problem_.batch;
    attributes.set_padding_mask(true)
        .set_seq_len_q(integers(kQLen, batch))
        .set_seq_len_kv(integers(kKvLen, batch));
    arrays_.add(kQLen, batch, [&](int64_t b) { return problem_.q_len_of(b); });
    arrays_.add(kKvLen, batch, [&](int64_t b) { return problem_.kv_len_of(b); });
  }

  void add_forward(const std::vector<Tensor>& t) {
    auto attributes = attributes_of<fe::graph::SDPA_attributes>(problem_);
    attributes.set_generate_stats(true);
    set_lengths(attributes);
    if (problem_.is_paged()) {
      attributes.set_paged_attention_k_table(block_table(t[1]))
          .set_paged_attention_v_table(block_table(t[2]))
          .set_paged_attention_max_seq_len_kv(static_cast<int>(problem_.kv_len));
    }
    const auto [o, stats] = graph_.sdpa(input(t[0]), input(t[1]), input(t[2]), attributes);
    set_output(o, t[3]);
    describe_logsumexp(stats->set_output(true));
  }

  void add_forward_of_bytes(const std::vector<Tensor>& t) {
    for (const Scalar& scalar : kScalars) {
      scalars_.push_back(scalar.value);
      scalars_.resize(scalars_.size() + kScalarStep - 1);
    }
    auto attributes = attributes_of<fe::graph::SDPA_fp8_attributes>(problem_);
    attributes.set_generate_stats(true);
    const auto [o, stats, most_p, most_o] = graph_.sdpa_fp8(
        input(t[0]), input(t[1]), input(t[2]), number(kQDescale), number(kKDescale),
        number(kVDescale), number(kPDescale), number(kPScale), number(kOScale), attributes);
    set_output(o, t[3]);
    describe_logsumexp(stats->set_output(true));
    describe_number(most_p->set_output(true), kMostP);
    describe_number(most_o->set_output(true), kMostO);
  }

  Node number(Uid uid) {
    fe::graph::Tensor_attributes attributes;
    describe_number(attributes, uid);
    return graph_.tensor(attributes);
  }

  static void describe_number(fe::graph::Tensor_attributes& attributes, Uid uid) {
    attributes.set_uid(uid)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({1, 1, 1, 1})
        .set_stride({1, 1, 1, 1});
  }

  void add_backward(const std::vector<Tensor>& t, bool deterministic) {
    auto attributes = attributes_of<fe::graph::SDPA_backward_attributes>(problem_);
    attributes.set_deterministic_algorithm(deterministic);
    set_lengths(attributes);
    if (problem_.is_ragged()) {  // else its workspace would have room for padding
      attributes.set_max_total_seq_len_q(problem_.q_tokens())
          .set_max_total_seq_len_kv(problem_.kv_tokens());
    }
    fe::graph::Tensor_attributes logsumexp;
    describe_logsumexp(logsumexp);
    const auto [dq, dk, dv] =
        graph_.sdpa_backward(input(t[0]), input(t[1]), input(t[2]), input(t[3]), input(t[4]),
                             graph_.tensor(logsumexp), attributes);
    set_output(dq, t[5]);
    set_output(dk, t[6]);
    set_output(dv, t[7]);
  }

  Problem problem_;
  std::vector<std::vector<int64_t>> strides_;
  Arrays arrays_;
  std::vector<float> scalars_;  // kScalars, kScalarStep apart
  Handle handle_;
  fe::graph::Graph graph_;
};

}  // namespace

std::optional<std::string> why_no_cudnn() {
  const FoundLibrary& library = cudnn_library();
  if (!library.error.empty()) return library.error;
  fe::cudnn_dlhandle = library.handle;
  return std::nullopt;
}

std::unique_ptr<CudnnGraph> make_cudnn_graph(const Problem& p, bool deterministic,
                                             int compute_capability, const Inputs& in,
                                             const Outputs& out) {
  if (const auto why = why_no_cudnn()) throw Unsupported(*why);
  refuse_what_fails(p);
  if (p.is_scaled()) refuse_masks_of_bytes(p, compute_capability);
  return std::make_unique<Graph>(p, deterministic, compute_capability, tensors_of(p.pass, in, out));
}

}  // namespace flashbench
