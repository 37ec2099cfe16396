#include <algorithm>
#include <array>

#include "attention/pages.h"
#include "device/cu_seqlens.h"
#include "plan/axis.h"
#include "program/figures.h"
#include "program/program.h"
#include "providers/providers.h"

namespace flashbench {

namespace {

using Json = ProgramDevice::Json;

// Axes of a problem that the tensors tell: their strides, or what is in the block table.
constexpr std::array<std::string_view, 5> kToldByTensors{"layout", "kv_layout", "page_order",
                                                         "shared_prefix", "block_table"};

bool is_told_by_tensors(const Axis& axis) {
  return std::find(kToldByTensors.begin(), kToldByTensors.end(), axis.name) != kToldByTensors.end();
}

Json problem_json(const Problem& p) {
  Case item;
  item.problem = p;
  Json json;
  for (const Axis& axis : axes()) {
    if (!axis.of_problem || !axis.is_mentioned(item)) continue;
    if (is_told_by_tensors(axis) || axis.name == "scale" || axis.name == "lengths") continue;
    json[std::string(axis.name)] = axis.get(item);
  }
  if (p.lengths) json["lengths"] = p.is_ragged() ? "ragged" : "padded";
  json["softmax_scale"] = p.softmax_scale();
  return json;
}

Json memory_json(const void* data, std::string_view dtype, const std::vector<int64_t>& shape,
                 const std::vector<int64_t>& strides) {
  return {{"address", reinterpret_cast<uint64_t>(data)},
          {"dtype", dtype},
          {"shape", shape},
          {"strides", strides}};
}

// A ragged tensor as one of a single request, which has all tokens.
Json tensor_json(const ConstTensorView& t) {
  const bool ragged = t.ragged != nullptr;
  return memory_json(t.data, name(t.dtype),
                     {ragged ? 1 : t.batch, t.heads, ragged ? t.all_rows() : t.length, t.head_dim},
                     {t.batch_stride, t.head_stride, t.row_stride, 1});
}

Json inputs_json(const Problem& p, const Inputs& in, const CuSeqlens& cu_seqlens) {
  const auto keys_json = [&](const ConstTensorView& t) {
    return tensor_json(t.is_paged() ? pool_view(t, p) : t);
  };
  Json json{{"q", tensor_json(in.q)}, {"k", keys_json(in.k)}, {"v", keys_json(in.v)}};
  if (p.is_paged()) {
    json["block_table"] =
        memory_json(in.k.pages.table, "int32", {p.batch, p.table_width()}, {in.k.pages.stride, 1});
  }
  if (in.d_o.data != nullptr) json["d_o"] = tensor_json(in.d_o);
  if (p.lengths) {
    json["cu_seqlens_q"] = memory_json(cu_seqlens.queries(), "int32", {p.batch + 1}, {1});
    json["cu_seqlens_k"] = memory_json(cu_seqlens.keys(), "int32", {p.batch + 1}, {1});
  }
  return json;
}

Json outputs_json(const Problem& p, const Outputs& out) {
  if (p.pass == Pass::backward) {
    return {{"dq", tensor_json(out.dq)}, {"dk", tensor_json(out.dk)}, {"dv", tensor_json(out.dv)}};
  }
  Json json{{"o", tensor_json(out.o)}};
  if (out.logsumexp != nullptr) {
    json["logsumexp"] = tensor_json(logsumexp_view<const void>(out.logsumexp, p));
  }
  return json;
}

class ProgramSession final : public Session {
 public:
  ProgramSession(ProgramDevice& device, const std::string& provider, const Problem& problem)
      : device_(device),
        problem_(problem),
        cu_seqlens_(device, problem),
        session_(device.ask_for<int>(
            "session",
            {{"do", "prepare"}, {"provider", provider}, {"problem", problem_json(problem)}})),
        kernel_(provider) {}
  ~ProgramSession() override { device_.give_back({{"do", "close"}, {"session", session_}}); }

  void prepare_inputs(const Inputs& in) override {
    const Json answer = device_.ask({{"do", "prepare_inputs"},
                                     {"session", session_},
                                     {"inputs", inputs_json(problem_, in, cu_seqlens_)}});
    plan_seconds_ =
        AnsweredFigures(answer, "prepare_inputs", device_.path()).seconds("plan_seconds");
  }
  void run(const Inputs&, const Outputs& out) override {
    const Json answer = device_.run(session_, outputs_json(problem_, out));
    kernel_ = AnsweredFigures(answer, "run", device_.path()).required<std::string>("kernel");
  }
  std::string kernel() const override { return kernel_; }
  std::optional<int64_t> requested_bytes() const override { return std::nullopt; }
  std::optional<double> plan_seconds() const override { return plan_seconds_; }

 private:
  ProgramDevice& device_;
  Problem problem_;
  CuSeqlens cu_seqlens_;
  int session_;
  std::string kernel_;  // after a run: what really ran
  std::optional<double> plan_seconds_;
};

class ProgramProvider final : public Provider {
 public:
  ProgramProvider(ProgramDevice& device, const ProgramDevice::Offer& offer)
      : device_(device), offer_(offer) {}

  std::string_view name() const override { return offer_.name; }
  std::string_view description() const override { return offer_.description; }
  DeviceKind device_kind() const override { return device_.info().kind; }
  std::string_view program() const override { return device_.path(); }
  bool gives_logsumexp() const override { return offer_.gives_logsumexp; }

  std::vector<std::string_view> optional_axes() const override {
    return {offer_.axes.begin(), offer_.axes.end()};
  }

  // Other unsupported problems are found only when they run.
  std::optional<std::string> why_unsupported(const Problem& p,
                                             const DeviceInfo& info) const override {
    if (auto why = why_too_few_gpus(p, info)) return why;
    return CuSeqlens::why_none(p);
  }
  int64_t workspace_bytes(const Problem&, const DeviceInfo&) const override { return 0; }

  std::unique_ptr<Session> prepare(const Problem& problem, Device&) const override {
    return std::make_unique<ProgramSession>(device_, offer_.name, problem);
  }

 private:
  ProgramDevice& device_;
  ProgramDevice::Offer offer_;
};

}  // namespace

std::vector<std::unique_ptr<Provider>> make_program_providers(ProgramDevice& device) {
  std::vector<std::unique_ptr<Provider>> providers;
  for (const ProgramDevice::Offer& offer : device.offers()) {
    providers.push_back(std::make_unique<ProgramProvider>(device, offer));
  }
  return providers;
}

}  // namespace flashbench
