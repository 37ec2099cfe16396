#include "attention.h"

#include <math.h>
#include <string.h>

/* Parallel sums, which a compiler can keep in a vector register. head_dim is a multiple of this. */
enum { kLanes = 8 };

static float* row(tensor t, int64_t batch, int64_t head, int64_t index) {
  if (t.pages != NULL) {
    batch = t.pages[batch * t.pages_stride + index / t.page_size];
    index %= t.page_size;
  }
  return t.data + batch * t.batch_stride + head * t.head_stride + index * t.row_stride;
}

static int64_t first_row(const attention_problem* p, int64_t batch, int64_t head) {
  return (batch * p->q_heads + head) * p->logsumexp_stride;
}

static float dot(const float* a, const float* b, int64_t n) {
  float sums[kLanes] = {0};
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
  return sum;
}

/* y += factor * x */
static void add_scaled(float factor, const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

/* Keys [first, end). */
typedef struct key_range {
  int64_t first, end;
} key_range;

static key_range visible_keys(const attention_problem* p, int64_t query) {
  const int64_t own = query + p->diagonal;
  key_range keys = {
      p->left < 0 || own < p->left ? 0 : own - p->left,
      p->right < 0 || own + p->right + 1 > p->kv_len ? p->kv_len : own + p->right + 1};
  if (keys.end < keys.first) keys.end = keys.first;
  return keys;
}

int64_t attention_forward_workspace(const attention_problem* p) {
  return p->kv_len;
}

void attention_forward(const attention_problem* p, tensor q, tensor k, tensor v, tensor o,
                       float* logsumexp, float* workspace) {
  const int64_t group = p->q_heads / p->kv_heads;
  float* scores = workspace; /* one row's */
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t h = 0; h < p->q_heads; ++h) {
      for (int64_t i = 0; i < p->q_len; ++i) {
        const key_range keys = visible_keys(p, i);
        const float* query = row(q, b, h, i);
        float* out = row(o, b, h, i);
        float largest = -INFINITY;
        for (int64_t j = keys.first; j < keys.end; ++j) {
          scores[j] = p->scale * dot(query, row(k, b, h / group, j), p->head_dim);
          largest = fmaxf(largest, scores[j]);
        }
        double sum = 0;
        memset(out, 0, sizeof(float) * (size_t)p->head_dim_v);
        for (int64_t j = keys.first; j < keys.end; ++j) {
          const float weight = expf(scores[j] - largest);
          sum += weight;
          add_scaled(weight, row(v, b, h / group, j), out, p->head_dim_v);
        }
        const int empty = keys.first == keys.end;
        for (int64_t c = 0; !empty && c < p->head_dim_v; ++c) out[c] = (float)(out[c] / sum);
        logsumexp[first_row(p, b, h) + i] = empty ? -INFINITY : largest + (float)log(sum);
      }
    }
  }
}

static void clear(tensor t, int64_t batch, int64_t heads, int64_t length, int64_t columns) {
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < length; ++i) {
        memset(row(t, b, h, i), 0, sizeof(float) * (size_t)columns);
      }
    }
  }
}

/* dQ = dS K, dK = dS^T Q, dV = P^T dO, with P = softmax(S) from the logsumexp, D = rowsum(dO * O)
 * and dS = P * (dO V^T - D) * scale. */
void attention_backward(const attention_problem* p, tensor q, tensor k, tensor v, tensor o,
                        const float* logsumexp, tensor d_o, tensor dq, tensor dk, tensor dv) {
  const int64_t group = p->q_heads / p->kv_heads, d = p->head_dim, d_v = p->head_dim_v;
  clear(dq, p->batch, p->q_heads, p->q_len, d);
  clear(dk, p->batch, p->kv_heads, p->kv_len, d);
  clear(dv, p->batch, p->kv_heads, p->kv_len, d_v);
  for (int64_t b = 0; b < p->batch; ++b) {
    for (int64_t h = 0; h < p->q_heads; ++h) {
      const int64_t kv = h / group;
      for (int64_t i = 0; i < p->q_len; ++i) {
        const float of_row = logsumexp[first_row(p, b, h) + i];
        const float* query = row(q, b, h, i);
        const float* gradient = row(d_o, b, h, i);
        const float delta = dot(gradient, row(o, b, h, i), d_v);
        const key_range keys = visible_keys(p, i);
        for (int64_t j = keys.first; j < keys.end; ++j) {
          const float* key = row(k, b, kv, j);
          const float weight = expf(p->scale * dot(query, key, d) - of_row);
          const float ds = weight * (dot(gradient, row(v, b, kv, j), d_v) - delta) * p->scale;
          add_scaled(ds, key, row(dq, b, h, i), d);
          add_scaled(ds, query, row(dk, b, kv, j), d);
          add_scaled(weight, gradient, row(dv, b, kv, j), d_v);
        }
      }
    }
  }
}
