// Work on rows in the memory of a rank, beside the attention kernels: fp32 partial results, and
// rows of other ranks.
#pragma once

#include <memory>
#include <vector>

#include "attention/tensors.h"
#include "device/device.h"
#include "device/device_group.h"
#include "providers/split/merge.h"

namespace flashbench {

// What queries saw of some of their keys: O, and the logsumexp as rows of one column. fp32.
struct PartialRows {
  TensorView o, logsumexp;
};

// In order on a stream. Tensors of one call have as many rows, [batch, heads, length].
class RowWork {
 public:
  virtual ~RowWork() = default;

  virtual void fill(const TensorView&, float value, Stream) const = 0;

  // Copies rows, maybe of other ranks.
  virtual void copy(const std::vector<RowCopy>&, Stream) const = 0;

  // Adds fp32 to fp32.
  virtual void add(const TensorView& sum, const ConstTensorView& part, Stream) const = 0;

  // Rounds fp32 to the dtype of `to`.
  virtual void store(const ConstTensorView& from, const TensorView& to, Stream) const = 0;

  // Merges rows of O and their logsumexp, fp32, as merge_rows does.
  virtual void merge(const TensorView& sum_o, const TensorView& sum_lse, const TensorView& part_o,
                     const TensorView& part_lse, Stream) const = 0;

  // Merges all parts of each row in their order, and rounds O to the dtype of `o`. Parts have the
  // same strides. They may be in the memory of other ranks, which nobody writes meanwhile.
  virtual void merge_parts(const std::vector<PartialRows>& parts, const TensorView& o,
                           const TensorView& logsumexp, Stream) const = 0;
};

// By the threads of the stream.
std::unique_ptr<RowWork> make_host_row_work(Merge);

// Adds fp32 to fp32 on a host, by the calling thread alone, which may be one of a kernel's.
void add_rows(const TensorView& sum, const ConstTensorView& part);

// By kernels on a GPU. Throws std::logic_error in a build without CUDA.
std::unique_ptr<RowWork> make_cuda_row_work();

}  // namespace flashbench
