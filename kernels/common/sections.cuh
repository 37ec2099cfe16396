// The order in which thread blocks take the blocks of rows of all heads: heads go in sections, of
// which what the blocks of a head read together fits the L2 cache. Within a section the first block
// of every head comes first, then the second.
#pragma once

namespace flashbench::kernels {

struct SectionItem {
  int head, block;
};

// The item `index` of `heads * blocks`.
__host__ __device__ __forceinline__ SectionItem item_in_sections(int index, int heads,
                                                                 int section_heads, int blocks) {
  const int section = index / (section_heads * blocks);
  const int first_head = section * section_heads;
  const int heads_here = min(section_heads, heads - first_head);
  const int within = index - first_head * blocks;
  return {first_head + within % heads_here, within / heads_here};
}

}  // namespace flashbench::kernels
