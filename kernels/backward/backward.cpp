#include "kernels/backward/backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numbers>

#include "kernels/backward/split.h"
#include "kernels/common/blocks.h"
#include "kernels/common/last_wave.h"
#include "kernels/common/mask.h"
#include "kernels/common/requests.h"

namespace flashbench::kernels::backward {
namespace {

static_assert(kRowPadding == kKeySumRows);

constexpr size_t align_up(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

int64_t padded(int64_t length) {
  return (length + kRowPadding - 1) / kRowPadding * kRowPadding;
}

// The rows of the workspace for the queries and the keys of a head, of all its batches.
int64_t query_rows(const Problem& p) {
  return is_by_request(p) ? workspace_rows(p.q_tokens(), p.batch) : p.batch * padded(p.q_len);
}
int64_t key_rows(const Problem& p) {
  return is_by_request(p) ? workspace_rows(p.kv_tokens(), p.batch) : p.batch * padded(p.kv_len);
}

// Slots for the blocks of keys of a head; by request, see kernels/common/requests.cuh.
int64_t key_block_slots(const Launch& at) {
  const Problem& p = at.problem;
  if (is_by_request(p)) return block_slots(p.kv_tokens(), p.batch, at.blocks.kv);
  return (p.kv_len + at.blocks.kv - 1) / at.blocks.kv;
}

// The main kernel's work: one item for each part of a block of keys of a K/V head, or for each
// piece if it is one of the last wave (last_wave.h). By request, as many more as run at once, if
// that wave may be split.
struct Items {
  Items(const Launch& at, int parts, const MainKernel& kernel) {
    const Problem& p = at.problem;
    const int64_t batch = is_by_request(p) ? 1 : p.batch;
    const LastWave last = split_blocks(at, parts, kernel);
    if (is_by_request(p) && may_split_last_wave(at, parts, kernel)) {
      at_once = static_cast<int>(slots(at));
    }
    whole = batch * p.kv_heads * parts * key_block_slots(at) - last.items + at_once;
    pieces = last.pieces;
    count = whole + last.items * last.pieces;
    most_pieces = last.items * last.pieces + kMostPiecesAtOnce * at_once;
  }
  int64_t count, whole;  // those from `whole` on are pieces
  int pieces;            // of a block of keys
  int at_once = 0;       // by request: how many run at once, if the last wave may be split
  int most_pieces;       // of all blocks of keys, by request, too
};

// The layout of the workspace. With a null base only `bytes` is meaningful.
struct Workspace {
  Workspace(const Launch& launch, const Items& items, int64_t slices, void* base) {
    const Problem& p = launch.problem;
    const size_t rows = static_cast<size_t>(p.q_heads * query_rows(p));
    const auto head_dim = static_cast<size_t>(compiled_head_dim(p.head_dim));
    char* at = static_cast<char*>(base);
    const auto take = [&](size_t size) {
      char* taken = at == nullptr ? nullptr : at + bytes;
      bytes += align_up(size);
      return taken;
    };
    const auto take_floats = [&](size_t count) {
      return reinterpret_cast<float*>(take(count * sizeof(float)));
    };
    dq_sums = take_floats(rows * head_dim);
    logsumexp_base_2 = take_floats(rows);
    d = take_floats(rows);
    turns = reinterpret_cast<int*>(take(rows / kTurnRows * sizeof(int)));
    tickets = reinterpret_cast<int*>(take(sizeof(int)));
    work_list = take(static_cast<size_t>(is_by_request(p) ? items.count : 0) * kRequestWorkBytes);
    const auto pieces = static_cast<size_t>(items.most_pieces);
    piece_sums = take_floats(pieces * static_cast<size_t>(launch.blocks.kv) * 2 * head_dim);
    piece_arrivals = reinterpret_cast<unsigned*>(take(pieces * kMostPieceWarps * sizeof(unsigned)));
    key_floats = static_cast<size_t>(slices * p.kv_heads * key_rows(p)) * head_dim;
    dk_sums = take_floats(key_floats);
    dv_sums = take_floats(key_floats);
  }
  float* dq_sums;
  float* logsumexp_base_2;
  float* d;
  int* turns;
  int* tickets;
  void* work_list;
  float* piece_sums;
  unsigned* piece_arrivals;
  float *dk_sums, *dv_sums;
  size_t key_floats = 0;  // size of dk_sums
  size_t bytes = 0;
};

int slices(const Launch& at, int parts, bool deterministic) {
  if (parts == 1 || at.key_sums != nullptr) return 0;
  return deterministic ? parts : 1;
}

Requests requests(const Launch& at) {
  const Problem& p = at.problem;
  if (!is_by_request(p)) return {};
  return {.queries = {at.cu_seqlens_q, static_cast<int>(p.q_len)},
          .keys = {at.cu_seqlens_k, static_cast<int>(p.kv_len)},
          .count = static_cast<int>(p.batch),
          .q_tokens = static_cast<int>(p.q_tokens()),
          .packed = p.is_ragged(),
          .top_left = p.mask == Mask::causal_top_left,
          .left = window_keys(p.window_left),
          .right = p.mask == Mask::none ? window_keys(p.window_right) : 0};
}

Strided strided(const ConstTensorView& t) {
  return {const_cast<void*>(t.data), t.batch_stride, t.head_stride, t.row_stride};
}

}  // namespace

std::optional<std::string> why_too_many_rows(const Problem& p) {
  const int64_t rows = std::max(p.q_tokens(), p.kv_tokens()) + p.batch * kRowPadding;
  if (!is_by_request(p) || rows <= std::numeric_limits<int32_t>::max()) return std::nullopt;
  return "too many rows in all requests";
}

std::string describe_main(const Launch& at, const MainKernel& kernel) {
  const int parts = choose_parts(at, kernel);
  const LastWave last = split_blocks(at, parts, kernel);
  std::string text = describe(at.blocks);
  if (parts > 1) text += fmt::format(", {} parts", parts);
  if (last.items > 0) {
    text += fmt::format(", {} blocks of keys in {} pieces", last.items, last.pieces);
  }
  return text;
}

// Its thread blocks all run at once and go through the rows.
void launch_first(const Launch& at, const Arguments& args, Stream stream, Start start) {
  const RowKernel rows = dot_do_o(at.problem);
  const int64_t at_once = kDotBlocks * std::max(1, at.device.threads);
  const int64_t spans = int64_t{args.batch} * args.q_heads * (args.padded_q / rows.rows);
  launch_kernel(rows.kernel, std::min(spans, at_once), args, stream, start);
}

int64_t listing_thread_blocks(const Arguments& args, int threads) {
  const int64_t warps = threads / 32;
  return (args.work_items + warps - 1) / warps;
}

// Of persistent thread blocks, each has a multiprocessor for itself.
int64_t main_thread_blocks(const Launch& at, const Arguments& args, bool persistent) {
  if (persistent) return std::min(args.work_items, std::max(1, at.device.threads));
  return int64_t{args.work_items} * at.blocks.cluster;
}

void launch_last(const Launch& at, const Arguments& args, Stream stream, Start start,
                 DqTiles dq_tiles) {
  const RowKernel rows = convert(at, dq_tiles);
  const int64_t query_rows = int64_t{args.batch} * args.q_heads * args.padded_q;
  const int64_t key_rows =
      args.slices > 0 ? 2 * int64_t{args.batch} * args.kv_heads * args.padded_kv : 0;
  launch_kernel(rows.kernel, (query_rows + key_rows) / rows.rows, args, stream, start);
}

size_t workspace_bytes(const Launch& at, const MainKernel& kernel) {
  const int parts = choose_parts(at, kernel);
  return Workspace(at, Items(at, parts, kernel), slices(at, parts, kernel.deterministic), nullptr)
      .bytes;
}

Arguments arguments(const Launch& at, const Inputs& in, const Outputs& out, void* workspace,
                    const MainKernel& kernel) {
  const Problem& p = at.problem;
  const int parts = choose_parts(at, kernel);
  const KeySums* const sums = at.key_sums;
  const Items items(at, parts, kernel);
  const int key_slices = slices(at, parts, kernel.deterministic);
  const Workspace space(at, items, key_slices, workspace);
  const double scale = p.softmax_scale();
  const bool by_request = is_by_request(p);
  return {.q = strided(in.q),
          .k = strided(in.k),
          .v = strided(in.v),
          .o = strided(in.o),
          .d_o = strided(in.d_o),
          .dq = strided(out.dq),
          .dk = strided(out.dk),
          .dv = strided(out.dv),
          .logsumexp = in.logsumexp,
          .dq_sums = space.dq_sums,
          .logsumexp_base_2 = space.logsumexp_base_2,
          .d = space.d,
          .turns = space.turns,
          .tickets = space.tickets,
          .work_list = space.work_list,
          .piece_sums = space.piece_sums,
          .piece_arrivals = space.piece_arrivals,
          .dk_sums = sums != nullptr ? sums->dk : space.dk_sums,
          .dv_sums = sums != nullptr ? sums->dv : space.dv_sums,
          .slices = key_slices,
          .zeros = kernel.deterministic ? 0 : static_cast<int64_t>(space.key_floats),
          .batch = by_request ? 1 : static_cast<int>(p.batch),
          .q_heads = static_cast<int>(p.q_heads),
          .kv_heads = static_cast<int>(p.kv_heads),
          .group = static_cast<int>(p.heads_per_kv_head()),
          .q_len = static_cast<int>(p.q_len),
          .kv_len = static_cast<int>(p.kv_len),
          .head_dim = static_cast<int>(p.head_dim),
          .padded_q = static_cast<int>(by_request ? query_rows(p) : padded(p.q_len)),
          .padded_kv = static_cast<int>(by_request        ? key_rows(p)
                                        : sums != nullptr ? sums->rows
                                                          : padded(p.kv_len)),
          .parts = parts,
          .adds_keys = parts > 1 || sums != nullptr,
          .key_blocks = static_cast<int>(key_block_slots(at)),
          .work_items = static_cast<int>(items.count),
          .whole_items = static_cast<int>(items.whole),
          .pieces = items.pieces,
          .at_once = items.at_once,
          .key_end = by_request ? 0 : static_cast<int>(p.seen_keys().end),
          .diagonal = by_request ? 0 : static_cast<int>(diagonal(p)),
          .scale = static_cast<float>(scale),
          .scale_log2 = static_cast<float>(scale * std::numbers::log2e),
          .requests = requests(at)};
}

void store_key_sums(const Launch& at, RowRange keys, const Outputs& out, Stream stream) {
  const Problem& p = at.problem;
  const auto block = [](int64_t row) {
    return static_cast<int>((row + kKeySumBlock - 1) / kKeySumBlock);
  };
  const int first = block(keys.first), count = block(keys.end) - first;
  if (count == 0) return;
  launch_kernel(convert_keys(p), 2 * p.batch * p.kv_heads * count,
                {arguments(at, {}, out, nullptr, {}), first, count}, stream);
}

// First kernel: reads O, dO and L; writes D, L in base 2 and zeros in dQ's accumulators. Main
// kernel: reads K and V up to the last key that any query sees, and writes dK and dV. Every thread
// block reads Q, dO, L and D of each block of queries that sees any of its keys, and adds to dQ's
// accumulators, which counts once. Those of a cluster do so for the keys of all, each to its share
// of the columns, in which it reads the others' keys too. Last kernel: reads the accumulators and
// writes dQ. What pieces of the last wave read again, and their sums, are left out. If thread
// blocks share keys, each part reads the keys and adds to accumulators of dK and dV, which counts
// once. These are then read; if all parts add to the same ones, they are first set to zero.
int64_t requested_bytes(const Launch& at, const MainKernel& kernel) {
  const Problem& p = at.problem;
  const int64_t element = element_size(p.dtype);
  constexpr int64_t kFloat = sizeof(float);
  // Those of blocks that any query sees.
  const auto seen_keys = [&](const Problem& r) {
    const RowRange seen = r.seen_keys();
    return seen.end - seen.first / at.blocks.kv * at.blocks.kv;
  };
  // That all thread blocks, or clusters of them, of one query head visit.
  const int64_t query_rows = p.sum_of_requests([&](const Problem& r) {
    int64_t rows = 0;
    for_each_key_block(r, at.blocks, [&](const RowRange& blocks) {
      if (!blocks.empty()) {
        rows += std::min(r.q_len, blocks.end * at.blocks.q) - blocks.first * at.blocks.q;
      }
    });
    return rows;
  });
  const int64_t queries = p.q_heads * p.q_tokens(), visited = p.q_heads * query_rows;
  const int64_t first = queries * (p.head_dim * (2 * element + kFloat) + 3 * kFloat);
  const int64_t parts = choose_parts(at, kernel), key_elements = p.kv_heads * p.head_dim;
  const int64_t seen = p.sum_of_requests(seen_keys), cluster = at.blocks.cluster;
  const int64_t keys_of_others = key_elements * parts * seen * (cluster - 1) / cluster * element;
  const int64_t keys = key_elements * (parts * seen + p.kv_tokens()) * 2 * element + keys_of_others;
  const int64_t read_and_zeroed = kernel.deterministic ? parts : 2;
  const int64_t sums =
      parts > 1 ? key_elements * p.kv_tokens() * 2 * kFloat * (parts + read_and_zeroed) : 0;
  const int64_t main =
      keys + visited * (cluster * (p.head_dim * 2 * element + 2 * kFloat) + p.head_dim * kFloat);
  const int64_t last = queries * p.head_dim * (kFloat + element);
  return first + main + sums + last;
}

}  // namespace flashbench::kernels::backward
