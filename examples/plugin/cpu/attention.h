/* Attention in plain C, fp32, on one thread: a project that knows nothing of flashbench. */
#ifndef ATTENTION_H
#define ATTENTION_H

#include <stdint.h>

/* Tensors [batch, heads, length, head_dim]; strides in elements, head_dim contiguous. */
typedef struct tensor {
  float* data;
  int64_t batch_stride, head_stride, row_stride;
} tensor;

typedef struct attention_problem {
  int64_t batch, q_heads, kv_heads, q_len, kv_len, head_dim;
  float scale; /* S = scale * Q K^T */
  int causal;  /* query row i sees key j only if j <= i + diagonal */
  int64_t diagonal;
} attention_problem;

/* Size of the forward pass's workspace in floats. */
int64_t attention_forward_workspace(const attention_problem*);

/* O = softmax(S) V. logsumexp: dense [batch, q_heads, q_len]. */
void attention_forward(const attention_problem*, tensor q, tensor k, tensor v, tensor o,
                       float* logsumexp, float* workspace);

void attention_backward(const attention_problem*, tensor q, tensor k, tensor v, tensor o,
                        const float* logsumexp, tensor d_o, tensor dq, tensor dk, tensor dv);

#endif
