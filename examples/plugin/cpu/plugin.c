/* attention.c as a flashbench plugin: everything that a kernel needs. */
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
#include "flashbench/plugin.h"

struct flashbench_session {
  int32_t pass, lengths, ragged, top_left;
  int64_t page_size;
  attention_problem problem; /* of the whole batch */
  float* workspace;
};

/* A causal mask is a window that ends at a query's own key. */
static attention_problem problem_of(const flashbench_problem* p) {
  const int causal = p->mask != FLASHBENCH_MASK_NONE;
  return (attention_problem){
      .batch = p->batch,
      .q_heads = p->q_heads,
      .kv_heads = p->kv_heads,
      .q_len = p->q_len,
      .kv_len = p->kv_len,
      .head_dim = p->head_dim,
      .head_dim_v = p->head_dim_v,
      .scale = (float)p->scale,
      .diagonal = p->mask == FLASHBENCH_MASK_CAUSAL_TOP_LEFT ? 0 : p->kv_len - p->q_len,
      .left = p->window_left,
      .right = causal ? 0 : p->window_right,
      .logsumexp_stride = p->layout == FLASHBENCH_LAYOUT_RAGGED ? p->q_tokens : p->q_len};
}

/* Strides are arguments, so that every layout and placement is supported. */
static flashbench_status supports(const flashbench_problem* p, const flashbench_device* device,
                                  char* why, size_t why_bytes) {
  (void)device;
  if (p->dtype == FLASHBENCH_FP32) return FLASHBENCH_OK;
  snprintf(why, why_bytes, "plain C has no 16-bit floats: fp32 only");
  return FLASHBENCH_UNSUPPORTED;
}

static flashbench_status workspace_bytes(const flashbench_problem* p,
                                         const flashbench_device* device, int64_t* bytes, char* why,
                                         size_t why_bytes) {
  (void)device, (void)why, (void)why_bytes;
  const attention_problem problem = problem_of(p);
  const int64_t floats = p->pass == FLASHBENCH_FORWARD ? attention_forward_workspace(&problem) : 0;
  *bytes = floats * (int64_t)sizeof(float);
  return FLASHBENCH_OK;
}

static flashbench_status prepare(const flashbench_problem* p, const flashbench_device* device,
                                 void* workspace, int64_t room, flashbench_session** session,
                                 char* why, size_t why_bytes) {
  (void)device, (void)room;
  *session = malloc(sizeof(**session));
  if (*session == NULL) {
    snprintf(why, why_bytes, "malloc has no memory for a session");
    return FLASHBENCH_OUT_OF_MEMORY;
  }
  **session = (flashbench_session){.pass = p->pass,
                                   .lengths = p->lengths,
                                   .ragged = p->layout == FLASHBENCH_LAYOUT_RAGGED,
                                   .top_left = p->mask == FLASHBENCH_MASK_CAUSAL_TOP_LEFT,
                                   .page_size = p->page_size,
                                   .problem = problem_of(p),
                                   .workspace = workspace};
  return FLASHBENCH_OK;
}

/* Where a batch, or one request of it, begins: in units of the batch's stride and of rows; and
 * which request that is. */
typedef struct start {
  int64_t batch, q_row, k_row, request;
} start;

static tensor tensor_at(const flashbench_tensor* t, int64_t batch, int64_t row) {
  float* data = t->data;
  if (data != NULL) data += batch * t->strides[0] + row * t->strides[2];
  return (tensor){.data = data,
                  .batch_stride = t->strides[0],
                  .head_stride = t->strides[1],
                  .row_stride = t->strides[2]};
}

/* Of k or v. The rows of a request in pages are where the block table says. */
static tensor keys_at(const flashbench_session* s, const flashbench_tensors* all,
                      const flashbench_tensor* t, start at) {
  if (s->page_size == 0) return tensor_at(t, at.batch, at.k_row);
  tensor pool = tensor_at(t, 0, 0);
  pool.pages = all->block_table + at.request * all->block_table_stride;
  pool.pages_stride = all->block_table_stride;
  pool.page_size = s->page_size;
  return pool;
}

static void attend(const flashbench_session* s, const attention_problem* p,
                   const flashbench_tensors* t, start at) {
  const tensor q = tensor_at(&t->q, at.batch, at.q_row), o = tensor_at(&t->o, at.batch, at.q_row);
  const tensor k = keys_at(s, t, &t->k, at), v = keys_at(s, t, &t->v, at);
  float* logsumexp = t->logsumexp + at.batch * p->q_heads * p->logsumexp_stride + at.q_row;
  if (s->pass == FLASHBENCH_FORWARD) {
    attention_forward(p, q, k, v, o, logsumexp, s->workspace);
  } else {
    attention_backward(p, q, k, v, o, logsumexp, tensor_at(&t->d_o, at.batch, at.q_row),
                       tensor_at(&t->dq, at.batch, at.q_row), tensor_at(&t->dk, at.batch, at.k_row),
                       tensor_at(&t->dv, at.batch, at.k_row));
  }
}

/* Requests of different lengths are problems of one request each. */
static void attend_request(const flashbench_session* s, const flashbench_tensors* t, int64_t b) {
  attention_problem one = s->problem;
  one.batch = 1;
  one.q_len = t->cu_seqlens_q[b + 1] - t->cu_seqlens_q[b];
  one.kv_len = t->cu_seqlens_k[b + 1] - t->cu_seqlens_k[b];
  one.diagonal = s->top_left ? 0 : one.kv_len - one.q_len;
  const start padded = {b, 0, 0, b}, packed = {0, t->cu_seqlens_q[b], t->cu_seqlens_k[b], b};
  attend(s, &one, t, s->ragged ? packed : padded);
}

static flashbench_status run(flashbench_session* s, const flashbench_tensors* t, void* stream,
                             char* why, size_t why_bytes) {
  (void)stream, (void)why, (void)why_bytes;
  if (!s->lengths) {
    attend(s, &s->problem, t, (start){0, 0, 0, 0});
    return FLASHBENCH_OK;
  }
  for (int64_t b = 0; b < s->problem.batch; ++b) attend_request(s, t, b);
  return FLASHBENCH_OK;
}

static void destroy(flashbench_session* session) {
  free(session);
}

static const char* kernel(const flashbench_session* s) {
  return s->pass == FLASHBENCH_FORWARD ? "attention_forward" : "attention_backward";
}

const uint32_t flashbench_plugin_abi_version = FLASHBENCH_PLUGIN_ABI_VERSION;
const flashbench_plugin flashbench_plugin_table = {
    .size = sizeof(flashbench_plugin),
    .description = "plain C, fp32, one thread",
    .device_kind = FLASHBENCH_CPU,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .prepare = prepare,
    .run = run,
    .destroy = destroy,
    .kernel = kernel,
    .features = FLASHBENCH_FEATURE_WINDOW | FLASHBENCH_FEATURE_HEAD_DIM_V |
                FLASHBENCH_FEATURE_LENGTHS | FLASHBENCH_FEATURE_PAGES};
