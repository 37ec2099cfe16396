// Our kernels for GPUs. The provider `tiled` takes the first that supports a problem, so that the
// faster design comes first.
#include <array>

#include "kernels/attention.h"

namespace flashbench::kernels {

extern const AttentionKernel kSm90Decode, kSm90DecodeBatchInvariant, kSm90Forward;
extern const AttentionKernel kSm90ForwardParts;
extern const AttentionKernel kSm90E4m3, kSm90E4m3Unpromoted;
extern const AttentionKernel kSm90Backward, kSm90BackwardDeterministic;
extern const AttentionKernel kSm80Forward, kSm80Backward, kSm80BackwardDeterministic;
extern const AttentionKernel kSimtForward, kSimtBackward;
extern const AttentionKernel kFa1Forward;

std::span<const AttentionKernel* const> cuda_kernels() {
  static constexpr std::array kKernels{&kSm90Decode,
                                       &kSm90ForwardParts,
                                       &kSm90Forward,
                                       &kSm90E4m3,
                                       &kSm90Backward,
                                       &kSm80Forward,
                                       &kSm80Backward,
                                       &kSimtForward,
                                       &kSimtBackward,
                                       &kFa1Forward,
                                       &kSm90DecodeBatchInvariant,
                                       &kSm90BackwardDeterministic,
                                       &kSm80BackwardDeterministic,
                                       &kSm90E4m3Unpromoted};
  return kKernels;
}

}  // namespace flashbench::kernels
