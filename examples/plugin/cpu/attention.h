/* Attention in plain C, fp32, on one thread: a project that knows nothing of flashbench. */
#ifndef ATTENTION_H
#define ATTENTION_H

#include <stdint.h>

/* Tensors [batch, heads, length, head_dim], or head_dim_v for v and o; strides in elements, the
 * last dimension contiguous. */
typedef struct tensor {
  float* data;
  int64_t batch_stride, head_stride, row_stride;

  /* Null, or: row i of request b is row i % page_size of page pages[b * pages_stride + i /
   * page_size] of k or v, in which a page takes the place of a request. */
  const int32_t* pages;
  int64_t pages_stride, page_size;
} tensor;

typedef struct attention_problem {
  int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim, head_dim_v;
  float scale; /* S = scale * Q K^T */

  /* Query row i has the key i + diagonal, and sees this many keys before and after it; -1: all. */
  int64_t diagonal, left, right;

  int64_t logsumexp_stride; /* from head to head */
} attention_problem;

/* Size of the forward pass's workspace in floats. */
int64_t attention_forward_workspace(const attention_problem*);

/* O = softmax(S) V. logsumexp: [batch, q_heads, q_len], q_heads strides a batch. */
void attention_forward(const attention_problem*, tensor q, tensor k, tensor v, tensor o,
                       float* logsumexp, float* workspace);

void attention_backward(const attention_problem*, tensor q, tensor k, tensor v, tensor o,
                        const float* logsumexp, tensor d_o, tensor dq, tensor dk, tensor dv);

#endif
