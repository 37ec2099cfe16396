#include "attention/token_split.h"

#include <algorithm>

namespace flashbench {

TokenSplit TokenSplit::of(const Problem& p) {
  return {p.split, p.kv_len, static_cast<int>(p.gpus.value())};
}

RowRange TokenSplit::chunk(int number) const {
  const int64_t length = chunk_length();
  return {std::min(number * length, tokens), std::min((number + 1) * length, tokens)};
}

std::array<int, 2> TokenSplit::chunks_of(int rank) const {
  if (split == Split::contiguous) return {2 * rank, 2 * rank + 1};
  return {rank, chunks() - 1 - rank};
}

int TokenSplit::owner(int chunk) const {
  if (split == Split::contiguous) return chunk / 2;
  return std::min(chunk, chunks() - 1 - chunk);
}

}  // namespace flashbench
