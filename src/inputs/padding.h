// The rows of a padded tensor behind each request's end: no part of its problem.
#pragma once

#include "attention/tensors.h"

namespace flashbench {

// Makes these rows of a tensor in host memory poison (NaN in every dtype). `rows`: the requests'
// own; of a pool those of each page.
void poison_padding(const TensorView& tensor, const RequestRows& rows);

// Makes them 0.
void clear_padding(const TensorView& tensor, const RequestRows& rows);

}  // namespace flashbench
