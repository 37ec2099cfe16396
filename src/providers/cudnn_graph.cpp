#include "providers/cudnn_graph.h"

#include <cudnn_frontend.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

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

// The tensors of a pass; the numbers identify them in the graph.
enum Uid : int64_t { kQ = 1, kK, kV, kO, kDO, kLogsumexp, kDQ, kDK, kDV };

struct Tensor {
  Uid uid;
  ConstTensorView view;

  std::vector<int64_t> sizes() const {
    return {view.batch, view.heads, view.length, view.head_dim};
  }
  std::vector<int64_t> strides() const {
    return {view.batch_stride, view.head_stride, view.row_stride, 1};
  }
};

std::vector<Tensor> tensors_of(Pass pass, const Inputs& in, const Outputs& out) {
  if (pass == Pass::forward) return {{kQ, in.q}, {kK, in.k}, {kV, in.v}, {kO, out.o}};
  return {{kQ, in.q},    {kK, in.k},    {kV, in.v},    {kO, in.o},
          {kDO, in.d_o}, {kDQ, out.dq}, {kDK, out.dk}, {kDV, out.dv}};
}

std::vector<std::vector<int64_t>> strides_of(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<int64_t>> strides;
  for (const Tensor& tensor : tensors) strides.push_back(tensor.strides());
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
  }
  return fe::DataType_t::NOT_SET;
}

// The attributes that forward and backward share. For bounds, and for the bottom right corner,
// cuDNN uses other, slower engines, and some of them refuse it. So a bound that hides nothing is
// left out, and the top left corner is named if both coincide. cuDNN's left bound counts a query's
// own key (docs/operations/Attention.md of cudnn-frontend).
template <typename Attributes>
Attributes attributes_of(const Problem& p) {
  Attributes attributes;
  attributes.set_attn_scale(static_cast<float>(p.softmax_scale()));
  const bool hides_first = p.visible_keys(p.q_len - 1).first > 0;
  const bool hides_last = p.visible_keys(0).end < p.kv_len;
  if (!hides_first && !hides_last) return attributes;
  attributes.set_diagonal_alignment(p.diagonal() == 0 ? fe::DiagonalAlignment_t::TOP_LEFT
                                                      : fe::DiagonalAlignment_t::BOTTOM_RIGHT);
  if (hides_first) attributes.set_diagonal_band_left_bound(static_cast<int>(*p.window_left + 1));
  if (hides_last) {
    attributes.set_diagonal_band_right_bound(
        p.mask == Mask::none ? static_cast<int>(*p.window_right) : 0);
  }
  return attributes;
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
    if (p.pass == Pass::forward) {
      add_forward(tensors);
    } else {
      add_backward(tensors, deterministic);
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

  void run(const Inputs& in, const Outputs& out, void* workspace) override {
    std::unordered_map<int64_t, void*> addresses;
    for (const Tensor& tensor : tensors_of(problem_.pass, in, out)) {
      addresses[tensor.uid] = const_cast<void*>(tensor.view.data);
    }
    addresses[kLogsumexp] =
        problem_.pass == Pass::forward ? out.logsumexp : const_cast<float*>(in.logsumexp);
    check(graph_.execute(handle_.get(), addresses, workspace));
  }

 private:
  using Node = std::shared_ptr<fe::graph::Tensor_attributes>;

  Node input(const Tensor& tensor) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(tensor.uid)
                             .set_dim(tensor.sizes())
                             .set_stride(tensor.strides()));
  }

  static void set_output(const Node& node, const Tensor& tensor) {
    node->set_output(true).set_uid(tensor.uid).set_dim(tensor.sizes()).set_stride(tensor.strides());
  }

  // [batch, q_heads, q_len, 1], dense.
  void describe_logsumexp(fe::graph::Tensor_attributes& attributes) const {
    const Problem& p = problem_;
    attributes.set_uid(kLogsumexp)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({p.batch, p.q_heads, p.q_len, 1})
        .set_stride({p.q_heads * p.q_len, p.q_len, 1, 1});
  }

  void add_forward(const std::vector<Tensor>& t) {
    auto attributes = attributes_of<fe::graph::SDPA_attributes>(problem_);
    attributes.set_generate_stats(true);
    const auto [o, stats] = graph_.sdpa(input(t[0]), input(t[1]), input(t[2]), attributes);
    set_output(o, t[3]);
    describe_logsumexp(stats->set_output(true));
  }

  void add_backward(const std::vector<Tensor>& t, bool deterministic) {
    auto attributes = attributes_of<fe::graph::SDPA_backward_attributes>(problem_);
    attributes.set_deterministic_algorithm(deterministic);
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
  Handle handle_;
  fe::graph::Graph graph_;
};

}  // namespace

std::optional<std::string> why_no_cudnn() {
  const CudnnLibrary& library = cudnn_library();
  if (!library.error.empty()) return library.error;
  fe::cudnn_dlhandle = library.handle;
  return std::nullopt;
}

std::unique_ptr<CudnnGraph> make_cudnn_graph(const Problem& p, bool deterministic,
                                             int compute_capability, const Inputs& in,
                                             const Outputs& out) {
  if (const auto why = why_no_cudnn()) throw Unsupported(*why);
  return std::make_unique<Graph>(p, deterministic, compute_capability, tensors_of(p.pass, in, out));
}

}  // namespace flashbench
