// Standard attention on the CPU: BLAS sgemm for all products, S and P [batch, q_heads, q_len,
// kv_len] in fp32 in memory, a vectorised softmax between them. The products also compute masked
// pairs, as in standard attention, but no padding. Paged K and V are gathered first, and those of
// 8 bits are multiplied by their factors.
#include <numbers>

#include "providers/naive_steps.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

constexpr int64_t kFloat = sizeof(float);

// Sizes of the parts of the workspace in floats. Tensors of 16 or 8 bits are converted to fp32 for
// BLAS, and paged ones become contiguous.
struct Sizes {
  explicit Sizes(const Problem& p) : Sizes(p, p.is_paged()) {}

  // `gathers`: also of a request of a paged problem.
  Sizes(const Problem& p, bool gathers) : scores(NaiveSteps::scores(p)), rows(p.query_rows()) {
    if (p.dtype != Dtype::fp32) {
      query_room = p.query_elements();
      output_room = p.output_elements();
    }
    if (p.dtype != Dtype::fp32 || gathers) {
      const int64_t keys = p.is_paged() ? p.kv_heads * p.kv_tokens() : p.key_rows();
      key_room = keys * p.head_dim;
      value_room = keys * p.value_dim();
    }
  }

  int64_t scores, query_room = 0, output_room = 0, key_room = 0, value_room = 0, rows;

  int64_t forward_rooms() const { return query_room + output_room + key_room + value_room; }
  int64_t backward_rooms() const {
    return 2 * query_room + output_room + 2 * key_room + 2 * value_room;
  }
  int64_t forward() const { return scores + forward_rooms(); }
  int64_t backward() const { return 2 * scores + backward_rooms() + rows; }
};

class NaiveForward final : public Session {
 public:
  NaiveForward(const Problem& problem, Device& device)
      : p_(problem),
        steps_(p_, *device.stream().threads),
        workspace_(device.allocate(static_cast<size_t>(Sizes(problem).forward() * kFloat),
                                   MemoryUse::workspace)) {
    const Sizes size(problem);
    scores_ = workspace_.as<float>();
    q_ = scores_ + size.scores;
    o_ = q_ + size.query_room;
    k_ = o_ + size.output_room;
    v_ = k_ + size.key_room;
  }

  void run(const Inputs& in, const Outputs& out) override {
    const ConstTensorView q = steps_.queries_as_fp32(in.q, q_);
    const ConstTensorView k = steps_.keys_as_fp32(in.k, k_);
    const ConstTensorView v = steps_.keys_as_fp32(in.v, v_);
    const TensorView o = NaiveSteps::fp32_room(out.o, o_);
    steps_.multiply_transposed(p_.softmax_scale() * std::numbers::log2e, q, k, scores_);
    steps_.softmax(scores_, out.logsumexp);
    steps_.multiply(1, scores_, v, o);
    steps_.queries_from_fp32(o, out.o);
  }

  std::string kernel() const override { return "naive_forward sgemm"; }

  // The tensors once, S and P written and read once each, and the conversions. Each K/V head reads
  // the block table for K and for V.
  std::optional<int64_t> requested_bytes() const override {
    const int64_t entries =
        2 * p_.kv_heads * p_.sum_by_number([&](int64_t b) { return p_.pages_of(b); });
    const int64_t requests = p_.sum_of_requests([&](const Problem& request) {
      const Sizes size(request, p_.is_paged());
      const int64_t conversions = 2 * kFloat * size.forward_rooms();
      return request.tensor_bytes() + 4 * kFloat * size.scores + conversions;
    });
    return requests + static_cast<int64_t>(sizeof(int32_t)) * entries;
  }

 private:
  Problem p_;
  NaiveSteps steps_;
  Buffer workspace_;
  float *scores_, *q_, *o_, *k_, *v_;
};

class NaiveBackward final : public Session {
 public:
  NaiveBackward(const Problem& problem, Device& device)
      : p_(problem),
        steps_(p_, *device.stream().threads),
        workspace_(device.allocate(static_cast<size_t>(Sizes(problem).backward() * kFloat),
                                   MemoryUse::workspace)) {
    const Sizes size(problem);
    probabilities_ = workspace_.as<float>();
    gradients_ = probabilities_ + size.scores;
    q_ = gradients_ + size.scores;
    d_o_ = q_ + size.query_room;
    dq_ = d_o_ + size.output_room;
    k_ = dq_ + size.query_room;
    v_ = k_ + size.key_room;
    dk_ = v_ + size.value_room;
    dv_ = dk_ + size.key_room;
    delta_ = dv_ + size.value_room;
  }

  void prepare_inputs(const Inputs& in) override {
    const ConstTensorView q = steps_.queries_as_fp32(in.q, q_);
    const ConstTensorView k = steps_.keys_as_fp32(in.k, k_);
    steps_.multiply_transposed(p_.softmax_scale() * std::numbers::log2e, q, k, probabilities_);
    steps_.softmax(probabilities_, delta_);  // writes a logsumexp that is not used
  }

  void run(const Inputs& in, const Outputs& out) override {
    const ConstTensorView q = steps_.queries_as_fp32(in.q, q_);
    const ConstTensorView d_o = steps_.queries_as_fp32(in.d_o, d_o_);
    const ConstTensorView k = steps_.keys_as_fp32(in.k, k_);
    const ConstTensorView v = steps_.keys_as_fp32(in.v, v_);
    const TensorView dq = NaiveSteps::fp32_room(out.dq, dq_);
    const TensorView dk = NaiveSteps::fp32_room(out.dk, dk_);
    const TensorView dv = NaiveSteps::fp32_room(out.dv, dv_);
    const double scale = p_.softmax_scale();
    steps_.multiply_scores_transposed(1, probabilities_, d_o, dv);
    steps_.multiply_transposed(1, d_o, v, gradients_);
    steps_.row_dots(in.o, in.d_o, delta_);
    steps_.softmax_gradient(probabilities_, gradients_, delta_);
    steps_.multiply(scale, gradients_, k, dq);
    steps_.multiply_scores_transposed(scale, gradients_, q, dk);
    steps_.queries_from_fp32(dq, out.dq);
    steps_.keys_from_fp32(dk, out.dk);
    steps_.keys_from_fp32(dv, out.dv);
  }

  std::string kernel() const override { return "naive_backward sgemm"; }

  // The tensors once, and dO again for D; seven passes over the scores (P for dV; dP written; P and
  // dP read, dS written; dS for dQ and for dK); D; and the conversions. L is not read.
  std::optional<int64_t> requested_bytes() const override {
    return p_.sum_of_requests([](const Problem& request) {
      const Sizes size(request);
      const int64_t again = element_size(request.dtype) * request.output_elements();
      const int64_t conversions = 2 * kFloat * size.backward_rooms();
      return request.tensor_bytes() + again + 7 * kFloat * size.scores + kFloat * size.rows +
             conversions;
    });
  }

 private:
  Problem p_;
  NaiveSteps steps_;
  Buffer workspace_;
  float *probabilities_, *gradients_;
  float *q_, *d_o_, *dq_, *k_, *v_, *dk_, *dv_, *delta_;
};

class NaiveProvider final : public Provider {
 public:
  std::string_view name() const override { return "naive"; }
  std::string_view description() const override {
    return "standard attention: OpenBLAS products, S and P in memory";
  }
  DeviceKind device_kind() const override { return DeviceKind::cpu; }
  std::vector<std::string_view> optional_axes() const override {
    std::vector<std::string_view> known = kEveryOptionalAxis;
    known.insert(known.end(), {"descale", "kv_dtype"});
    return known;
  }

  std::optional<std::string> why_unsupported(const Problem&, const DeviceInfo&) const override {
    return std::nullopt;
  }
  int64_t workspace_bytes(const Problem& p, const DeviceInfo&) const override {
    const Sizes size(p);
    return kFloat * (p.pass == Pass::forward ? size.forward() : size.backward());
  }
  std::unique_ptr<Session> prepare(const Problem& p, Device& device) const override {
    if (p.pass == Pass::forward) return std::make_unique<NaiveForward>(p, device);
    return std::make_unique<NaiveBackward>(p, device);
  }
};

}  // namespace

std::unique_ptr<Provider> make_naive_provider() {
  return std::make_unique<NaiveProvider>();
}

}  // namespace flashbench
