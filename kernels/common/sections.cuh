// The order in which thread blocks process the row blocks of all heads. Heads are grouped in
// sections; the data that all blocks of a section read fits the L2 cache, but for the last section,
// which may be larger. Within a section, the first block of every head comes first, then the second
// block of every head, and so on.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

namespace flashbench::kernels {

struct SectionItem {
  int head, block;
};

// Item `index` of the `heads * blocks` items.
__host__ __device__ __forceinline__ SectionItem item_in_sections(int index, int heads,
                                                                 int section_heads, int blocks) {
  const int section = index / (section_heads * blocks);
  const int first_head = section * section_heads;
  const int heads_left = heads - first_head;
  const int heads_here = section_heads < heads_left ? section_heads : heads_left;
  const int within = index - first_head * blocks;
  return {first_head + within % heads_here, within / heads_here};
}

// Sections of `heads` heads, but for the one with the number `last`, which has all that are left.
struct Sections {
  int heads = 1, last = 0;
};

// The same in such sections.
__host__ __device__ __forceinline__ SectionItem item_in_sections(int index, int heads,
                                                                 const Sections& sections,
                                                                 int blocks) {
  const int section = index / (sections.heads * blocks);
  const bool is_last = section >= sections.last;
  const int first_head = (is_last ? sections.last : section) * sections.heads;
  const int heads_here = is_last ? heads - first_head : sections.heads;
  const int within = index - first_head * blocks;
  return {first_head + within % heads_here, within / heads_here};
}

// The number of heads in a section, if heads are divided into so many sections; into fewer if the
// last one would have fewer heads than the others, and than `least`.
inline int64_t heads_of_section(int64_t heads, int64_t sections, int64_t least) {
  int64_t each = (heads + sections - 1) / sections;
  while (heads - (sections - 1) * each < std::min(each, least)) {
    --sections;
    each = (heads + sections - 1) / sections;
  }
  return each;
}

// Another order of all items: the `ahead` items that follow the `held_back` from `first` on come
// before these.
struct ItemOrder {
  int first = 0, held_back = 0, ahead = 0;

  __host__ __device__ __forceinline__ int item(int index) const {
    const int i = index - first;
    if (i < 0 || i >= held_back + ahead) return index;
    return i < ahead ? index + held_back : index - ahead;
  }
};

}  // namespace flashbench::kernels
