#include "kernels/cpu/tiles.h"

#include "kernels/cpu/targets.h"  // before Highway

#include <fmt/format.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>

namespace flashbench::kernels {

namespace {

// The largest tiles, by pass and head_dim, with the limits that determine them on a core with 48
// KiB of L1 and 2 MiB of L2 (measurements: docs/cpu_kernels.md):
//
// Forward: a panel of scores, keys x 32 floats, stays in L1 beside a block of V, one or two cache
// lines per key. This allows 128 keys. More queries mean fewer copies of K and V into scratch; Q
// and O, queries x head_dim floats each, stay in L2 beside those copies.
//
// Backward: a slice of Q or dO, queries x 32 floats, stays in L1 beside a block of P, one or two
// cache lines per query. This allows 128 queries. More keys mean fewer passes over Q, dO and dQ;
// two copies of K, and V, dK and dV, keys x head_dim floats each, stay in L2.
struct LargestTile {
  Pass pass;
  int64_t max_head_dim;
  Tile tile;
};
constexpr std::array kLargestTiles{
    LargestTile{Pass::forward, 128, {.queries = 512, .keys = 128}},
    LargestTile{Pass::forward, kMaxHeadDim, {.queries = 256, .keys = 128}},
    LargestTile{Pass::backward, 128, {.queries = 128, .keys = 256}},
    LargestTile{Pass::backward, kMaxHeadDim, {.queries = 128, .keys = 128}},
};

// Forward work items (query tiles) per thread: enough that the last ones to finish are a small part
// of the work.
constexpr int64_t kQueryTilesPerThread = 4;

int64_t whole_steps(int64_t value, int64_t most) {
  return std::min(round_up(std::max<int64_t>(value, 1), kTileStep), most);
}

}  // namespace

Tile choose_tile(const Problem& p, int threads) {
  const int64_t head_dim = std::max(p.head_dim, p.value_dim());
  const auto fits = [&](const LargestTile& l) {
    return l.pass == p.pass && head_dim <= l.max_head_dim;
  };
  const Tile most = std::find_if(kLargestTiles.begin(), kLargestTiles.end(), fits)->tile;
  Tile tile{whole_steps(p.q_len, most.queries), whole_steps(p.kv_len, most.keys)};
  if (p.pass == Pass::forward) {
    tile.queries =
        whole_steps(p.q_heads * p.q_tokens() / (kQueryTilesPerThread * threads), tile.queries);
  } else {
    tile.keys = whole_steps(p.kv_heads * p.kv_tokens() / threads, tile.keys);
  }
  return tile;
}

std::string name_of(Tile tile) {
  return fmt::format("{}x{}", tile.queries, tile.keys);
}

std::string with_target(std::string_view kernel) {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  const int64_t best = targets & -targets;  // the lowest bit
  return fmt::format("{} {}", kernel, hwy::TargetName(best));
}

}  // namespace flashbench::kernels
