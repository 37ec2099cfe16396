#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "measure/host_read.h"
#include "measure/round_ceilings.h"

namespace flashbench {

namespace {

constexpr int64_t kPartBytes = int64_t{256} << 10;
constexpr int32_t kMostRows = 1 << 16;
constexpr size_t kLine = 8;  // words of a cache line, so that threads write to lines of their own

// Calls row(address, bytes) for each row of each head of the part; a row of all heads that lies
// without gaps is one.
template <typename Data, typename Row>
void for_rows(const BasicTensorView<Data>& t, const StreamPart& part, const Row& row) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  const int64_t element = element_size(t.dtype), bytes = t.head_dim * element;
  const bool heads_touch = t.head_stride == t.head_dim;
  const int64_t heads = heads_touch ? 1 : t.heads, end = part.first + part.rows;
  for (int64_t first = part.first; first < end;) {
    const int64_t run_end = std::min(end, t.end_of_run(first));
    for (int64_t h = 0; h < heads; ++h) {
      Byte* at = static_cast<Byte*>(t.data) + t.offset(part.request, h, first) * element;
      for (int64_t r = first; r < run_end; ++r, at += t.row_stride * element) {
        row(at, heads_touch ? bytes * t.heads : bytes);
      }
    }
    first = run_end;
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
    HostReader reader;
    for_rows(tensor, part, [&](const std::byte* row, int64_t bytes) { reader.add(row, bytes); });
    sums[static_cast<size_t>(thread) * kLine] += reader.sum();
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
          {std::string(kNullLaunch), "launch/s", "an empty loop of " + threads, 1,
           [&pool] { pool.parallel_for(pool.threads(), [](int64_t, int) {}); }}};
}

}  // namespace flashbench
