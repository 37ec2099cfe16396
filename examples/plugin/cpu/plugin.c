/* attention.c as a flashbench plugin: everything that a kernel needs. */
#include <stdio.h>
#include <stdlib.h>

#include "attention.h"
#include "flashbench/plugin.h"

struct flashbench_session {
  int32_t pass;
  attention_problem problem;
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
      .right = causal ? 0 : p->window_right};
}

static tensor tensor_of(const flashbench_tensor* t) {
  return (tensor){t->data, t->strides[0], t->strides[1], t->strides[2]};
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
  **session = (flashbench_session){p->pass, problem_of(p), workspace};
  return FLASHBENCH_OK;
}

static flashbench_status run(flashbench_session* s, const flashbench_tensors* t, void* stream,
                             char* why, size_t why_bytes) {
  (void)stream, (void)why, (void)why_bytes;
  const tensor q = tensor_of(&t->q), k = tensor_of(&t->k), v = tensor_of(&t->v);
  const tensor o = tensor_of(&t->o);
  if (s->pass == FLASHBENCH_FORWARD) {
    attention_forward(&s->problem, q, k, v, o, t->logsumexp, s->workspace);
  } else {
    attention_backward(&s->problem, q, k, v, o, t->logsumexp, tensor_of(&t->d_o), tensor_of(&t->dq),
                       tensor_of(&t->dk), tensor_of(&t->dv));
  }
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
    .features = FLASHBENCH_FEATURE_WINDOW | FLASHBENCH_FEATURE_HEAD_DIM_V};
