// cuDNN's fused attention. cuDNN itself decides what it supports, and how (cudnn_graph.h), except
// that fp32, and factors that its graph cannot have, are refused here.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "device/cuda_call.h"
#include "device/cudnn_library.h"
#include "providers/cudnn_graph.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

// Views without data, and without a block table. A graph is built for strides. Each gradient has
// the layout in memory of its own tensor. O has that of Q; with a head_dim_v, whose O is not as
// wide as Q, all are dense.
struct Tensors {
  Inputs in;
  Outputs out;

  static Tensors like(const Problem& p, const ConstTensorView& q, const ConstTensorView& k,
                      const ConstTensorView& v) {
    const auto no_data = [](const ConstTensorView& t) {
      return TensorView{nullptr,
                        t.dtype,
                        t.batch,
                        t.heads,
                        t.length,
                        t.head_dim,
                        t.batch_stride,
                        t.head_stride,
                        t.row_stride,
                        t.ragged,
                        {nullptr, t.pages.stride, t.pages.size}};
    };
    const TensorView query = no_data(q), key = no_data(k), value = no_data(v);
    const TensorView output = p.head_dim_v ? output_view<void>(nullptr, p) : query;
    return {.in = {.q = query, .k = key, .v = value, .o = output, .d_o = output},
            .out = {.o = output, .dq = query, .dk = key, .dv = value}};
  }
  static Tensors dense(const Problem& p) {
    const auto of_requests = [&](const ConstTensorView& t) {
      return p.is_paged() ? paged_view(t, p, nullptr, p.table_width()) : t;
    };
    return like(p, query_view<const void>(nullptr, p),
                of_requests(key_view<const void>(nullptr, p)),
                of_requests(value_view<const void>(nullptr, p)));
  }
};

// Of the logsumexp in the order in which a ragged backward graph reads it.
size_t logsumexp_bytes(const Problem& p) {
  if (p.pass == Pass::forward || !p.is_ragged()) return 0;
  return static_cast<size_t>(p.query_rows()) * sizeof(float);
}

class CudnnSession final : public Session {
 public:
  // `graph` is built for dense tensors.
  CudnnSession(const Problem& problem, bool deterministic, Device& device,
               std::unique_ptr<CudnnGraph> graph)
      : problem_(problem), deterministic_(deterministic), device_(device) {
    plan(std::move(graph));
  }

  // The strides of the tensors are known only here.
  void prepare_inputs(const Inputs& in) override {
    const Tensors tensors = Tensors::like(problem_, in.q, in.k, in.v);
    if (!graph_->fits(tensors.in, tensors.out)) {
      plan(make_cudnn_graph(problem_, deterministic_, device_.info().compute_capability, tensors.in,
                            tensors.out));
    }
    if (logsumexp_.data() != nullptr) take_logsumexp(in.logsumexp);
  }

  void run(const Inputs& in, const Outputs& out) override {
    Inputs own = in;
    if (logsumexp_.data() != nullptr) own.logsumexp = logsumexp_.as<float>();
    graph_->run(own, out, lengths_.as<int32_t>(), scalars_.as<float>(), workspace_.data());
  }

  std::string kernel() const override {
    return fmt::format("cudnn {} {}", cudnn_library().version, graph_->plan_name());
  }

  // cuDNN does not report its tiles.
  std::optional<int64_t> requested_bytes() const override { return std::nullopt; }

 private:
  void plan(std::unique_ptr<CudnnGraph> graph) {
    workspace_ = Buffer();
    graph_ = std::move(graph);
    graph_->build_plan(device_.stream().cuda);
    workspace_ =
        device_.allocate(static_cast<size_t>(graph_->workspace_bytes()), MemoryUse::workspace);
    logsumexp_ = device_.allocate(logsumexp_bytes(problem_), MemoryUse::workspace);
    const std::vector<float>& scalars = graph_->scalars();
    scalars_ = device_.allocate(scalars.size() * sizeof(float), MemoryUse::workspace);
    if (!scalars.empty()) {
      device_.copy_to_device(scalars_.data(), scalars.data(), scalars_.bytes());
    }
    const std::vector<int32_t>& lengths = graph_->lengths();
    if (lengths.empty()) return;
    lengths_ = device_.allocate(lengths.size() * sizeof(int32_t), MemoryUse::input);
    device_.copy_to_device(lengths_.data(), lengths.data(), lengths_.bytes());
  }

  // From [q_heads, tokens] to [tokens, q_heads], in which cuDNN's own forward pass may leave it.
  void take_logsumexp(const float* logsumexp) {
    const auto tokens = static_cast<size_t>(problem_.q_tokens());
    const auto heads = static_cast<size_t>(problem_.q_heads);
    for (size_t h = 0; h < heads; ++h) {
      FLASHBENCH_CUDA(cudaMemcpy2DAsync(logsumexp_.as<float>() + h, heads * sizeof(float),
                                        logsumexp + h * tokens, sizeof(float), sizeof(float),
                                        tokens, cudaMemcpyDeviceToDevice,
                                        static_cast<cudaStream_t>(device_.stream().cuda)));
    }
  }

  Problem problem_;
  bool deterministic_;
  Device& device_;
  std::unique_ptr<CudnnGraph> graph_;
  Buffer workspace_;
  Buffer logsumexp_;          // in the order of cuDNN; null if that is ours
  Buffer lengths_, scalars_;  // of CudnnGraph
};

class CudnnProvider final : public Provider {
 public:
  explicit CudnnProvider(bool deterministic) : deterministic_(deterministic) {}

  std::string_view name() const override {
    return deterministic_ ? "cudnn:deterministic" : "cudnn";
  }
  std::string_view description() const override {
    return deterministic_ ? "cuDNN's fused attention, with a deterministic backward pass"
                          : "cuDNN's fused attention, with the plan that its heuristic prefers";
  }
  DeviceKind device_kind() const override { return DeviceKind::cuda; }
  std::optional<std::string> why_absent() const override { return why_no_cudnn(); }
  bool on_request_only() const override { return deterministic_; }
  std::vector<Dtype> dtypes() const override { return {kDtypes.begin(), kDtypes.end()}; }
  std::vector<std::string_view> optional_axes() const override {
    std::vector<std::string_view> axes = kEveryOptionalAxis;
    axes.emplace_back("descale");
    return axes;
  }

  // cuDNN does not say whether it promotes, so that the weaker is assumed.
  Accumulator accumulator(const Problem& p) const override {
    return p.is_scaled() ? Accumulator{.truncates = true} : Accumulator{};
  }

  // On Hopper it stores O of bytes as bytes alone.
  Dtype output_dtype(const Problem& p) const override { return p.dtype; }

  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& info) const override {
    if (const auto why = why_absent()) return why;
    if (deterministic_ && p.pass == Pass::forward) {
      return "only its backward pass differs from the provider cudnn";
    }
    if (p.dtype == Dtype::fp32) {
      // This is documented. 9.19.0 still accepts an fp32 forward graph, and its kernels then read
      // illegal addresses or leave NaN.
      return "cuDNN's attention takes only fp16, bf16 and e4m3";
    }
    if (p.is_scaled() && p.descale != Descale::per_tensor) {
      return "cuDNN's attention takes one factor for each tensor (descale per_tensor)";
    }
    try {
      asked_ = {p, dense_graph(p, info)};
      return std::nullopt;
    } catch (const std::exception& error) {
      return error.what();
    }
  }
  std::optional<std::string> why_unsupported_placement(const Problem& p, Placement placement,
                                                       const DeviceInfo&) const override {
    switch (placement) {
      case Placement::contiguous:
        return std::nullopt;
      case Placement::strided:
        if (!p.head_dim_v) return std::nullopt;
        return "its graph is made before O's strides are known, which with a head_dim_v are not "
               "Q's";
      case Placement::offset:
        return "cudnn-frontend tells cuDNN that every tensor starts at a multiple of 16 bytes";
    }
    throw std::logic_error("no such placement");
  }
  int64_t workspace_bytes(const Problem& p, const DeviceInfo& info) const override {
    const auto graph = dense_graph(p, info);
    graph->build_plan(nullptr);
    return graph->workspace_bytes() +
           static_cast<int64_t>(logsumexp_bytes(p) + graph->scalars().size() * sizeof(float));
  }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    auto asked = std::exchange(asked_, {});
    const bool same = asked.graph != nullptr && asked.problem == p;
    return std::make_unique<CudnnSession>(
        p, deterministic_, device, same ? std::move(asked.graph) : dense_graph(p, device.info()));
  }

 private:
  std::unique_ptr<CudnnGraph> dense_graph(const Problem& p, const DeviceInfo& info) const {
    const Tensors tensors = Tensors::dense(p);
    return make_cudnn_graph(p, deterministic_, info.compute_capability, tensors.in, tensors.out);
  }

  // Asking cuDNN whether it supports a problem builds the graph that prepare() needs next.
  struct Asked {
    Problem problem;
    std::unique_ptr<CudnnGraph> graph;
  };

  bool deterministic_;
  mutable Asked asked_;
};

}  // namespace

std::unique_ptr<Provider> make_cudnn_provider(CudnnSums sums) {
  return std::make_unique<CudnnProvider>(sums == CudnnSums::fixed_order);
}

}  // namespace flashbench
