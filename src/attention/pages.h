// A paged problem and its tensors without the block table.
#pragma once

#include "attention/tensors.h"

namespace flashbench {

// The problem with the same keys and values outside pages, in its `layout`.
Problem without_pages(Problem);

// The pool that holds a paged K or V, in which a page stands for a request.
template <typename Data>
BasicTensorView<Data> pool_view(BasicTensorView<Data> paged, const Problem& p) {
  paged.batch = p.pool_pages();
  paged.length = *p.page_size;
  paged.ragged = nullptr;
  paged.pages = {};
  return paged;
}

}  // namespace flashbench
