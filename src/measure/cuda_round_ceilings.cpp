#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <vector>

#include "measure/cuda_stream.h"

namespace flashbench {

namespace {

constexpr int64_t kAccess = 16;  // bytes

// A ragged tensor is one request of all tokens; its parts count rows from there.
template <typename Data>
cuda_stream::Tensor stream_tensor(const BasicTensorView<Data>& t) {
  const int64_t element = element_size(t.dtype);
  return {.data = static_cast<unsigned char*>(const_cast<void*>(t.data)),
          .batch_stride = t.batch_stride * element,
          .row_stride = t.row_stride * element,
          .head_stride = t.head_stride * element,
          .heads = static_cast<int>(t.heads),
          .row_bytes = static_cast<int>(t.head_dim * element),
          .heads_first = t.row_stride < t.head_stride,
          .table = t.pages.table,
          .table_stride = t.pages.stride,
          .page_size = static_cast<unsigned>(t.pages.size)};
}

bool is_aligned(const cuda_stream::Tensor& t) {
  return (reinterpret_cast<uintptr_t>(t.data) | static_cast<uintptr_t>(t.batch_stride) |
          static_cast<uintptr_t>(t.row_stride) | static_cast<uintptr_t>(t.head_stride)) %
             kAccess ==
         0;
}

// Rows of a ragged tensor count from the first token of the batch.
void count_from_the_first_token(std::vector<StreamPart>& parts, const Lengths& lengths,
                                bool keys_too) {
  for (StreamPart& part : parts) {
    const bool of_queries = part.tensor == StreamPart::q || part.tensor == StreamPart::o;
    if (!of_queries && !keys_too) continue;
    part.first += (of_queries ? lengths.queries() : lengths.keys()).first(part.request);
  }
}

}  // namespace

std::vector<CeilingWork> cuda_round_ceilings(Device& device, const Problem& p, const Inputs& in,
                                             const Outputs& out) {
  cuda_stream::Work work{.tensors = {stream_tensor(in.q), stream_tensor(in.k), stream_tensor(in.v),
                                     stream_tensor(out.o)}};
  const bool fits = std::all_of(std::begin(work.tensors), std::end(work.tensors), is_aligned) &&
                    std::max(p.q_len, p.kv_len) <= std::numeric_limits<int32_t>::max();
  if (!fits) return {};
  std::vector<StreamPart> parts = stream_parts(p, cuda_stream::kPartBytes, cuda_stream::kMostRows);
  const auto bytes = static_cast<double>(stream_bytes(p, parts));
  if (p.is_ragged()) count_from_the_first_token(parts, *p.lengths, !p.is_paged());

  const auto on_device = std::make_shared<Buffer>(
      device.allocate(parts.size() * sizeof(StreamPart), MemoryUse::workspace));
  device.copy_to_device(on_device->data(), parts.data(), on_device->bytes());
  work.parts = on_device->as<const StreamPart>();
  work.count = static_cast<int64_t>(parts.size());
  auto* const stream = static_cast<cudaStream_t>(device.stream().cuda);
  return {{std::string(kStream), "byte/s", "one launch that reads Q, K and V and writes O", bytes,
           [work, on_device, stream] { cuda_stream::run(work, stream); }},
          {std::string(kNullLaunch), "launch/s", "an empty kernel", 1,
           [stream] { cuda_stream::nothing(stream); }}};
}

}  // namespace flashbench
