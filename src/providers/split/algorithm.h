// How several devices share the work of one problem. Each algorithm is a file.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "providers/split/rank.h"

namespace flashbench {

using Ranks = std::vector<std::unique_ptr<Rank>>;

class SplitAlgorithm {
 public:
  virtual ~SplitAlgorithm() = default;

  // The work of one rank, on its thread. Of the case's tensors a rank reads and writes the rows of
  // its own tokens in place; what others have it pulls first.
  virtual void run(Rank&, const Inputs&, const Outputs&) = 0;

  // Called outside of run(), before runs of this part: gets memory that others do not need.
  virtual void prepare(GroupPart) {}
};

// Each pulls all keys and values, then computes its queries.
std::unique_ptr<SplitAlgorithm> make_gather(const Ranks&);

// The same, but a kernel starts at once and waits for each chunk of keys. On GPUs one launch has
// all queries of a rank, and waits for smaller parts; backward, launches read the keys of others
// where they are, and add to sums there.
std::unique_ptr<SplitAlgorithm> make_gated(const Ranks&);
std::unique_ptr<SplitAlgorithm> make_gated_share(const Ranks&);
std::unique_ptr<SplitAlgorithm> make_gated_backward(const Ranks&);

// Each pulls all tokens of some heads and computes these heads. On GPUs one launch waits for parts
// of them, forward and where chunks are whole blocks.
std::unique_ptr<SplitAlgorithm> make_ulysses(const Ranks&);
std::unique_ptr<SplitAlgorithm> make_ulysses_share(const Ranks&);

// In each step a rank pulls the keys and values of another while it computes with those before, and
// merges what the steps give.
std::unique_ptr<SplitAlgorithm> make_ring(const Ranks&);

// The same, but the ranks hand keys and values on by NCCL's send and receive.
std::unique_ptr<SplitAlgorithm> make_nccl_ring(const Ranks&);

// Each computes all queries with its part of the keys, and merges the partial results of its heads
// where they are.
std::unique_ptr<SplitAlgorithm> make_dcp(const Ranks&);

// No way to share a problem, but what the others are compared with: the rank that has the most work
// does it, its queries with all keys that they see or all queries with its keys, and the others are
// idle.
std::unique_ptr<SplitAlgorithm> make_share(const Ranks&);

struct SplitKind {
  std::string_view name, description;
  std::unique_ptr<SplitAlgorithm> (*make)(const Ranks&);
  bool backward = false, splits_heads = false, splits_keys = false, gates = false, merges = false;
  bool nccl = false;  // its group is of make_nccl_group(): GPUs only

  // Whether kernels add dK and dV to sums of all ranks (kernels::KeySums).
  bool has_key_sums(Pass pass, DeviceKind device) const {
    return gates && pass == Pass::backward && device == DeviceKind::cuda;
  }

  // What the algorithm adds up or merges: O of a part of the keys, dQ likewise, dK and dV of a part
  // of the queries.
  kernels::Fp32Outputs fp32_outputs(Pass pass, DeviceKind device) const {
    const bool adds_keys = pass == Pass::backward && !splits_heads && !has_key_sums(pass, device);
    return {.of_queries = merges, .of_keys = adds_keys};
  }
};
// Of all kinds of devices.
inline constexpr std::array kSplitKinds{
    SplitKind{.name = "tiled:gather",
              .description = "each device pulls all keys and values, then computes its queries",
              .make = make_gather,
              .backward = true},
    SplitKind{.name = "tiled:ulysses",
              .description = "each device pulls all tokens of some heads and computes these heads",
              .make = make_ulysses,
              .backward = true,
              .splits_heads = true},
    SplitKind{.name = "tiled:ring",
              .description = "keys and values go round while each device merges what it computes",
              .make = make_ring,
              .backward = true,
              .merges = true},
    SplitKind{.name = "tiled:gated",
              .description = "as gather, but the kernel waits for each chunk of keys",
              .make = make_gated,
              .backward = true,
              .gates = true},
    SplitKind{.name = "tiled:dcp",
              .description = "each device has a part of the keys; partial results are merged",
              .make = make_dcp,
              .splits_keys = true,
              .merges = true},
};

inline constexpr SplitKind kNcclRing{
    .name = "tiled:ring_nccl",
    .description = "as ring, but keys and values are handed on by NCCL's send and receive",
    .make = make_nccl_ring,
    .backward = true,
    .merges = true,
    .nccl = true};

inline constexpr SplitKind kShare{
    .name = "share", .description = "the work of one device", .make = make_share, .backward = true};

// A session of these parts. `problem` must have gpus, as many as the group has ranks.
std::unique_ptr<Session> make_split_session(const SplitKind&, const SplitParts&, const Problem&,
                                            std::unique_ptr<DeviceGroup>);

}  // namespace flashbench
