#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "measure/round_ceilings.h"

namespace flashbench {

namespace {

constexpr int64_t kPartBytes = int64_t{256} << 10;
constexpr int32_t kMostRows = 1 << 16;
constexpr size_t kLine = 8;  // words of a cache line, so that threads write to lines of their own

// The sum of the words of a row; a row is a multiple of 8 elements, and aligned to an element only.
uint64_t sum_of(const std::byte* row, int64_t bytes) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, row + i, sizeof(word));
    sum += word;
  }
  return sum;
}

// Calls row(address, bytes) for each row of each head of the part. Rows in one piece that lie
// without gaps are one.
template <typename Data, typename Row>
void for_rows(const BasicTensorView<Data>& t, const StreamPart& part, const Row& row) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  const int64_t element = element_size(t.dtype), bytes = t.head_dim * element;
  const bool heads_touch = t.head_stride == t.head_dim;
  for (int64_t r = part.first; r < part.first + part.rows; ++r) {
    for (int64_t h = 0; h < (heads_touch ? 1 : t.heads); ++h) {
      row(static_cast<Byte*>(t.data) + t.offset(part.request, h, r) * element,
          heads_touch ? bytes * t.heads : bytes);
    }
  }
}

struct HostStream {
  Problem problem;
  Inputs in;
  Outputs out;
  std::vector<StreamPart> parts;
  std::vector<uint64_t> sums;  // a line for each thread: keeps the reads alive

  void run(const StreamPart& part, int thread) {
    if (part.tensor == StreamPart::o) {
      return for_rows(out.o, part, [](std::byte* row, int64_t bytes) {
        std::memset(row, 0, static_cast<size_t>(bytes));
      });
    }
    const ConstTensorView& tensor = part.tensor == StreamPart::q   ? in.q
                                    : part.tensor == StreamPart::k ? in.k
                                                                   : in.v;
    uint64_t sum = 0;
    for_rows(tensor, part, [&](const std::byte* row, int64_t bytes) { sum += sum_of(row, bytes); });
    sums[static_cast<size_t>(thread) * kLine] += sum;
  }
};

}  // namespace

std::vector<CeilingWork> host_round_ceilings(Device& device, const Problem& p, const Inputs& in,
                                             const Outputs& out) {
  ThreadPool& pool = *device.stream().threads;
  const auto stream = std::make_shared<HostStream>(
      HostStream{p, in, out, stream_parts(p, kPartBytes, kMostRows),
                 std::vector<uint64_t>(static_cast<size_t>(pool.threads()) * kLine)});
  const std::string threads = fmt::format("{} threads", pool.threads());
  return {{std::string(kStream), "byte/s", "sum over the rows of Q, K and V, O set, " + threads,
           static_cast<double>(stream_bytes(p, stream->parts)),
           [stream, &pool] {
             pool.parallel_for(static_cast<int64_t>(stream->parts.size()),
                               [&](int64_t item, int thread) {
                                 stream->run(stream->parts[static_cast<size_t>(item)], thread);
                               });
           }},
          {std::string(kNullLaunch), "launch/s", threads + " woken", 1,
           [&pool] { pool.parallel_for(pool.threads(), [](int64_t, int) {}); }}};
}

}  // namespace flashbench
