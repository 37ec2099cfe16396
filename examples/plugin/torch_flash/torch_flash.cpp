// FlashAttention-2 as it is built into PyTorch, forward and backward, as a flashbench plugin.
//
// PyTorch allocates the results and the workspace of its functions. A copy into the tool's tensors
// would be timed, and memory from elsewhere would not be counted. PyTorch therefore gets an
// allocator that hands out the tool's own memory: the outputs for the first requests of their
// sizes, the workspace for everything else. Nothing is copied (but see copies_logsumexp). If
// PyTorch does not put its results there, run reports that and fails.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "flashbench/plugin.h"

namespace {

// ---- memory

constexpr size_t kAlignment = 512;
// If it splits the keys, FlashAttention-2 writes the logsumexp in groups of up to this many rows.
// It writes the last group whole, past the end of the tensor, where PyTorch's own allocator would
// have left room.
constexpr int64_t kRowGroup = 16;

constexpr int64_t kSeedBytes = 4 * kAlignment;  // for seeds, on the device only in a graph

size_t aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct Block {
  void* data = nullptr;
  size_t bytes = 0;
};

// The memory that PyTorch gets. Without a workspace, it comes from CUDA, and everything except the
// outputs is added up: that is the workspace that the same calls will need.
class Memory {
 public:
  static Memory& instance() {
    static Memory memory;
    return memory;
  }

  void serve(std::vector<Block> outputs, Block workspace) {
    outputs_ = std::move(outputs);
    workspace_ = workspace;
    used_ = 0;
  }
  size_t used() const { return used_; }

  void* allocate(size_t bytes) {
    for (Block& output : outputs_) {
      if (output.data != nullptr && output.bytes == bytes) {
        return std::exchange(output.data, nullptr);
      }
    }
    const size_t first = used_;
    used_ += aligned(bytes);
    if (workspace_.data == nullptr) {
      void* data = nullptr;
      TORCH_CHECK(cudaMalloc(&data, bytes) == cudaSuccess, "CUDA has no memory for ", bytes,
                  " bytes");
      from_cuda_.insert(data);
      return data;
    }
    TORCH_CHECK(used_ <= workspace_.bytes, "PyTorch wants ", used_, " bytes, and wanted ",
                workspace_.bytes, " when it was asked");
    return static_cast<char*>(workspace_.data) + first;
  }
  void free(void* data) {
    if (from_cuda_.erase(data) > 0) cudaFree(data);
  }

 private:
  std::vector<Block> outputs_;
  Block workspace_;
  size_t used_ = 0;
  std::set<void*> from_cuda_;
};

// Call this before PyTorch allocates anything on the device.
void take_over_allocation() {
  static const bool done = [] {
    using namespace torch::cuda::CUDAPluggableAllocator;
    changeCurrentAllocator(createCustomAllocator(
        [](size_t bytes, int, cudaStream_t) { return Memory::instance().allocate(bytes); },
        [](void* data, size_t, int, cudaStream_t) { Memory::instance().free(data); }));
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    return true;
  }();
  static_cast<void>(done);
}

// ---- tensors

at::ScalarType scalar_type(int32_t dtype) {
  return dtype == FLASHBENCH_FP16 ? at::kHalf : at::kBFloat16;
}

at::TensorOptions on_device(int32_t index, at::ScalarType type) {
  return at::TensorOptions().dtype(type).device(c10::Device(c10::DeviceType::CUDA, index));
}

// One side of a problem: its queries, or its keys.
struct Side {
  int64_t heads, length, tokens;
};
Side queries(const flashbench_problem& p) {
  return {p.q_heads, p.q_len, p.q_tokens};
}
Side keys(const flashbench_problem& p) {
  return {p.kv_heads, p.kv_len, p.kv_tokens};
}

// FlashAttention's order of dimensions: [batch, length, heads, head_dim], or of requests with
// lengths of their own [tokens, heads, head_dim].
at::Tensor tensor_of(const flashbench_problem& p, const flashbench_tensor& t, const Side& side,
                     int32_t device) {
  const at::TensorOptions options = on_device(device, scalar_type(t.dtype));
  if (p.lengths) {
    return at::from_blob(t.data, {side.tokens, side.heads, t.sizes[3]},
                         {t.strides[2], t.strides[1], t.strides[3]}, options);
  }
  return at::from_blob(t.data, {t.sizes[0], t.sizes[2], t.sizes[1], t.sizes[3]},
                       {t.strides[0], t.strides[2], t.strides[1], t.strides[3]}, options);
}

Block block_of(const flashbench_problem& p, const flashbench_tensor& t, const Side& side) {
  return {t.data, static_cast<size_t>(side.tokens * side.heads * p.head_dim) * 2};
}

flashbench_tensor dense(const flashbench_problem& p, const Side& side) {
  flashbench_tensor t{};
  t.dtype = p.dtype;
  const int64_t row = side.heads * p.head_dim;
  const int64_t sizes[4] = {p.batch, side.heads, side.length, p.head_dim};
  const int64_t strides[4] = {p.lengths ? 0 : side.length * row, p.head_dim, row, 1};
  std::copy(sizes, sizes + 4, t.sizes);
  std::copy(strides, strides + 4, t.strides);
  return t;
}

int64_t rows(const flashbench_problem& p) {
  return p.q_heads * p.q_tokens;
}

size_t logsumexp_bytes(const flashbench_problem& p) {
  return static_cast<size_t>(rows(p)) * sizeof(float);
}

// If true, the logsumexp gets room in the workspace, and the copy of 4 bytes per row is timed. The
// functions for requests of different lengths do not split the keys.
bool copies_logsumexp(const flashbench_problem& p) {
  return p.pass == FLASHBENCH_FORWARD && !p.lengths && rows(p) % kRowGroup != 0;
}

// ---- FlashAttention

void require_at(const at::Tensor& result, const void* wanted, const char* name) {
  TORCH_CHECK(result.data_ptr() == wanted, "this PyTorch does not allocate ", name,
              " where it is expected to");
}

at::Tensor cu_seqlens(const flashbench_problem& p, const int32_t* data, int32_t device) {
  if (!p.lengths) return {};
  return at::from_blob(const_cast<int32_t*>(data), {p.batch + 1}, on_device(device, at::kInt));
}

void forward(const flashbench_problem& p, const flashbench_tensors& t, int32_t device,
             cudaStream_t stream) {
  const auto starts = [&](const int32_t* data) {
    return p.lengths ? std::optional(cu_seqlens(p, data, device)) : std::nullopt;
  };
  const auto result = at::_flash_attention_forward(
      tensor_of(p, t.q, queries(p), device), tensor_of(p, t.k, keys(p), device),
      tensor_of(p, t.v, keys(p), device), starts(t.cu_seqlens_q), starts(t.cu_seqlens_k), p.q_len,
      p.kv_len, /*dropout_p=*/0.0, p.mask != FLASHBENCH_MASK_NONE,
      /*return_debug_mask=*/false, p.scale, p.window_left, p.window_right);
  require_at(std::get<0>(result), t.o.data, "o");
  const at::Tensor& logsumexp = std::get<1>(result);
  TORCH_CHECK(logsumexp.numel() == rows(p), "this PyTorch pads the logsumexp");
  if (!copies_logsumexp(p)) return require_at(logsumexp, t.logsumexp, "logsumexp");
  TORCH_CHECK(logsumexp.is_contiguous(), "this PyTorch pads the logsumexp");
  TORCH_CHECK(cudaMemcpyAsync(t.logsumexp, logsumexp.data_ptr(), logsumexp_bytes(p),
                              cudaMemcpyDeviceToDevice, stream) == cudaSuccess,
              "cudaMemcpyAsync failed");
}

void backward(const flashbench_problem& p, const flashbench_tensors& t, int32_t device) {
  const at::TensorOptions options = on_device(device, at::kFloat);
  const at::Tensor logsumexp =
      p.lengths ? at::from_blob(t.logsumexp, {p.q_heads, p.q_tokens}, options)
                : at::from_blob(t.logsumexp, {p.batch, p.q_heads, p.q_len}, options);
  const at::Tensor no_dropout = at::empty({}, at::kLong);
  const auto result = at::_flash_attention_backward(
      tensor_of(p, t.d_o, queries(p), device), tensor_of(p, t.q, queries(p), device),
      tensor_of(p, t.k, keys(p), device), tensor_of(p, t.v, keys(p), device),
      tensor_of(p, t.o, queries(p), device), logsumexp, cu_seqlens(p, t.cu_seqlens_q, device),
      cu_seqlens(p, t.cu_seqlens_k, device), p.q_len, p.kv_len, /*dropout_p=*/0.0,
      p.mask != FLASHBENCH_MASK_NONE, no_dropout, no_dropout, p.scale, p.window_left,
      p.window_right);
  require_at(std::get<0>(result), t.dq.data, "dq");
  require_at(std::get<1>(result), t.dk.data, "dk");
  require_at(std::get<2>(result), t.dv.data, "dv");
}

void attend(const flashbench_problem& p, const flashbench_tensors& t, int32_t device,
            Block workspace, cudaStream_t stream) {
  const c10::InferenceMode no_autograd;
  const c10::cuda::CUDAStreamGuard on_stream(
      c10::cuda::getStreamFromExternal(stream, static_cast<c10::DeviceIndex>(device)));
  if (p.pass == FLASHBENCH_FORWARD) {
    std::vector<Block> outputs{block_of(p, t.o, queries(p))};
    if (!copies_logsumexp(p)) outputs.push_back({t.logsumexp, logsumexp_bytes(p)});
    Memory::instance().serve(std::move(outputs), workspace);
    forward(p, t, device, stream);
  } else {
    Memory::instance().serve(
        {block_of(p, t.dq, queries(p)), block_of(p, t.dk, keys(p)), block_of(p, t.dv, keys(p))},
        workspace);
    backward(p, t, device);
  }
}

// Lengths with this total, of which none is longer than the longest.
std::vector<int32_t> some_starts(const flashbench_problem& p, const Side& side) {
  std::vector<int32_t> starts{0};
  for (int64_t b = 0; b < p.batch; ++b) {
    const int64_t next = std::min(starts.back() + side.length, side.tokens);
    starts.push_back(static_cast<int32_t>(next));
  }
  return starts;
}

// Memory that is freed once a run on zeros has told how much PyTorch needs.
class Zeros {
 public:
  Zeros() = default;
  ~Zeros() {
    cudaDeviceSynchronize();
    for (void* data : taken_) cudaFree(data);
  }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;

  void* take(size_t bytes) {
    void* data = nullptr;
    TORCH_CHECK(cudaMalloc(&data, bytes) == cudaSuccess, "CUDA has no memory for ", bytes,
                " bytes");
    taken_.push_back(data);
    TORCH_CHECK(cudaMemset(data, 0, bytes) == cudaSuccess, "cudaMemset failed");
    return data;
  }
  const int32_t* take_starts(const std::vector<int32_t>& starts) {
    const size_t bytes = starts.size() * sizeof(int32_t);
    void* data = take(bytes);
    TORCH_CHECK(cudaMemcpy(data, starts.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess,
                "cudaMemcpy failed");
    return static_cast<const int32_t*>(data);
  }

 private:
  std::vector<void*> taken_;
};

// The size of PyTorch's allocations other than the outputs, found by a run on zeros.
int64_t needed_workspace(const flashbench_problem& p, int32_t device) {
  Zeros zeros;
  flashbench_tensors t{};
  for (flashbench_tensor* tensor : {&t.q, &t.o, &t.d_o, &t.dq}) {
    *tensor = dense(p, queries(p));
    tensor->data = zeros.take(block_of(p, *tensor, queries(p)).bytes);
  }
  for (flashbench_tensor* tensor : {&t.k, &t.v, &t.dk, &t.dv}) {
    *tensor = dense(p, keys(p));
    tensor->data = zeros.take(block_of(p, *tensor, keys(p)).bytes);
  }
  t.logsumexp = static_cast<float*>(zeros.take(logsumexp_bytes(p) + kRowGroup * sizeof(float)));
  if (p.lengths) {
    t.cu_seqlens_q = zeros.take_starts(some_starts(p, queries(p)));
    t.cu_seqlens_k = zeros.take_starts(some_starts(p, keys(p)));
  }
  cudaDeviceSynchronize();
  attend(p, t, device, {}, nullptr);
  return static_cast<int64_t>(Memory::instance().used());
}

// ---- the interface

// Calls `work`, and turns an exception into a status and a sentence.
template <typename Work>
flashbench_status guarded(char* why, size_t why_bytes, const Work& work) {
  try {
    work();
    return FLASHBENCH_OK;
  } catch (const c10::Error& error) {
    std::snprintf(why, why_bytes, "%s", error.what_without_backtrace());
  } catch (const std::exception& error) {
    std::snprintf(why, why_bytes, "%s", error.what());
  }
  return FLASHBENCH_ERROR;
}

const char* why_unsupported(const flashbench_problem& p, const flashbench_device& device) {
  if (p.dtype == FLASHBENCH_FP32) return "FlashAttention-2 computes in fp16 and bf16";
  if (device.compute_capability < 80) return "FlashAttention-2 needs compute capability 8.0";
  if (p.lengths && p.layout != FLASHBENCH_LAYOUT_RAGGED) {
    return "FlashAttention-2 takes requests of different lengths packed: layout ragged";
  }
  if (!p.lengths && p.layout != FLASHBENCH_LAYOUT_BSHD) return "FlashAttention-2's layout is bshd";
  if (p.placement != FLASHBENCH_PLACEMENT_CONTIGUOUS) {
    return "PyTorch chooses where results lie: dense and aligned";
  }
  if (p.mask == FLASHBENCH_MASK_CAUSAL_TOP_LEFT && (p.q_len != p.kv_len || p.lengths)) {
    return "FlashAttention-2 aligns its masks to the bottom right corner";
  }
  if (p.q_len == 1 && p.q_heads > p.kv_heads) {
    return "PyTorch copies the output where one query meets grouped heads";
  }
  if (p.rows_without_keys) {
    return "FlashAttention-2 gives rows that see no key a logsumexp of +inf";
  }
  return nullptr;
}

flashbench_status supports(const flashbench_problem* p, const flashbench_device* device, char* why,
                           size_t why_bytes) {
  const char* reason = why_unsupported(*p, *device);
  if (reason == nullptr) return FLASHBENCH_OK;
  std::snprintf(why, why_bytes, "%s", reason);
  return FLASHBENCH_UNSUPPORTED;
}

flashbench_status workspace_bytes(const flashbench_problem* p, const flashbench_device* device,
                                  int64_t* bytes, char* why, size_t why_bytes) {
  return guarded(why, why_bytes, [&] {
    take_over_allocation();
    *bytes = needed_workspace(*p, device->index) + kSeedBytes;
  });
}

}  // namespace

struct flashbench_session {
  flashbench_problem problem;
  int32_t device;
  Block workspace;
};

namespace {

flashbench_status prepare(const flashbench_problem* p, const flashbench_device* device,
                          void* workspace, int64_t bytes, flashbench_session** session, char* why,
                          size_t why_bytes) {
  return guarded(why, why_bytes, [&] {
    const Block room{workspace, static_cast<size_t>(bytes)};
    *session = std::make_unique<flashbench_session>(*p, device->index, room).release();
  });
}

flashbench_status run(flashbench_session* session, const flashbench_tensors* t, void* stream,
                      char* why, size_t why_bytes) {
  return guarded(why, why_bytes, [&] {
    attend(session->problem, *t, session->device, session->workspace,
           static_cast<cudaStream_t>(stream));
  });
}

void destroy(flashbench_session* session) {
  delete session;
}

const char* kernel(const flashbench_session* session) {
  return copies_logsumexp(session->problem) ? "FlashAttention-2 of PyTorch " TORCH_VERSION
                                              ", copy of logsumexp"
                                            : "FlashAttention-2 of PyTorch " TORCH_VERSION;
}

}  // namespace

extern "C" const uint32_t flashbench_plugin_abi_version = FLASHBENCH_PLUGIN_ABI_VERSION;
extern "C" const flashbench_plugin flashbench_plugin_table = {
    sizeof(flashbench_plugin),
    "FlashAttention-2 as PyTorch " TORCH_VERSION " has it",
    FLASHBENCH_CUDA,
    supports,
    workspace_bytes,
    prepare,
    run,
    destroy,
    kernel,
    nullptr,  // requested bytes: PyTorch does not report them
    FLASHBENCH_FEATURE_WINDOW | FLASHBENCH_FEATURE_LENGTHS};
