/*
 * The C interface by which flashbench runs an attention kernel from a shared object: the provider
 * plugin:NAME of `flashbench run --plugin /path/to/NAME.so`. C11 and C++; needs no other header,
 * not even CUDA's.
 *
 * A plugin exports two constants, with the names and types that are declared at the end:
 *
 *   const uint32_t flashbench_plugin_abi_version = FLASHBENCH_PLUGIN_ABI_VERSION;
 *   const flashbench_plugin flashbench_plugin_table = { ... };
 *
 * The tool reads the version first, and does not use a plugin that was built for another one.
 *
 * Order of calls, for each problem: supports; workspace_bytes; prepare; kernel, requested_bytes and
 * run, each any number of times; destroy. supports and workspace_bytes may be called at any time.
 *
 * Threads   One call at a time, in one worker process, not always from the same thread. Sessions of
 *           different problems and plugins may be alive at once.
 * Ownership The tool owns what a pointer argument points to. It is valid only during the call: copy
 *           what you keep. The workspace belongs to the session until destroy. The plugin owns a
 *           session, and the text that kernel returns, until destroy.
 * GPUs      The device is the current one of the calling thread, in its primary context. run
 *           launches only on the given stream; it does not wait, allocate or free. It is timed by
 *           events around it. Its launches may be captured into a CUDA graph and repeated without
 *           a call to run, so that nothing may depend on a count of calls. The first run of a
 *           session is neither timed nor captured, so that code can be loaded lazily.
 * CPUs      The outputs are complete when run returns. The plugin uses its own threads: at most as
 *           many as flashbench_device says, and none of them works between calls.
 * Errors    A function that cannot do its work returns a status other than FLASHBENCH_OK and may
 *           write a sentence to `why`, of at most `why_bytes` with its terminating 0. C++
 *           exceptions must not leave a plugin.
 *
 * What the tool verifies: every element of every output against a reference in fp64, before and
 * after timing; that outputs follow their inputs; that nothing is written outside the outputs; that
 * inputs are unchanged; that all work is done when the stream is. It judges outputs alone: a plugin
 * can deceive it on purpose, because both share a process. Workers protect the tool against
 * accidents, not against malice: run only plugins that you trust.
 */
#ifndef FLASHBENCH_PLUGIN_H
#define FLASHBENCH_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FLASHBENCH_PLUGIN_ABI_VERSION 1u

#if defined(__GNUC__)
#define FLASHBENCH_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define FLASHBENCH_PLUGIN_EXPORT
#endif

/* The status that functions return. */
typedef int32_t flashbench_status;
enum {
  FLASHBENCH_OK = 0,
  FLASHBENCH_ERROR = 1,         /* the row's status is `error` */
  FLASHBENCH_UNSUPPORTED = 2,   /* not from run: the row's status is `unsupported` */
  FLASHBENCH_OUT_OF_MEMORY = 3, /* the row's status is `out_of_memory` */
};

enum { FLASHBENCH_FORWARD = 0, FLASHBENCH_BACKWARD = 1 };               /* pass */
enum { FLASHBENCH_FP32 = 0, FLASHBENCH_FP16 = 1, FLASHBENCH_BF16 = 2 }; /* dtype */

/* The keys j that query row i sees: all; j <= i (the diagonal starts in the top left corner);
 * j <= i + kv_len - q_len (the diagonal ends in the bottom right corner). */
enum {
  FLASHBENCH_MASK_NONE = 0,
  FLASHBENCH_MASK_CAUSAL_TOP_LEFT = 1,
  FLASHBENCH_MASK_CAUSAL_BOTTOM_RIGHT = 2,
};

/* Order of a tensor's dimensions in memory: [batch, length, heads, head_dim];
 * [batch, heads, length, head_dim]; or [tokens, heads, head_dim], the rows of request b from row
 * cu_seqlens[b] on. */
enum { FLASHBENCH_LAYOUT_BSHD = 0, FLASHBENCH_LAYOUT_BHSD = 1, FLASHBENCH_LAYOUT_RAGGED = 2 };

/* The placement of tensors in memory: dense, and aligned to 64 bytes on a CPU, 256 on a GPU; with
 * gaps after rows, heads and batches, every row aligned to 8 elements; dense, one element past an
 * aligned address. */
enum {
  FLASHBENCH_PLACEMENT_CONTIGUOUS = 0,
  FLASHBENCH_PLACEMENT_STRIDED = 1,
  FLASHBENCH_PLACEMENT_OFFSET = 2,
};

enum { FLASHBENCH_CPU = 0, FLASHBENCH_CUDA = 1 }; /* device kind */

/* What a plugin can do beyond the first problems of this interface: bits of
 * flashbench_plugin.features. A problem that needs another bit is not offered to it. */
enum {
  FLASHBENCH_FEATURE_WINDOW = 1,     /* reads window_left and window_right */
  FLASHBENCH_FEATURE_HEAD_DIM_V = 2, /* reads head_dim_v */
  FLASHBENCH_FEATURE_LENGTHS = 4,    /* reads lengths, cu_seqlens_q and cu_seqlens_k */
  FLASHBENCH_FEATURE_PAGES = 8,      /* reads page_size and block_table */
};

/* Structures that a later tool may extend begin with their size in that tool. Members are only
 * added at the end, so that a member within the size exists. */

typedef struct flashbench_problem {
  size_t size;
  int32_t pass, dtype, mask, layout, placement;
  int64_t batch;
  int64_t q_heads, kv_heads; /* query head h reads K/V head h / (q_heads / kv_heads) */
  int64_t q_len, kv_len;
  int64_t head_dim; /* a multiple of 8, at most 256 */
  double scale;     /* S = scale * Q K^T */

  /* Row i sees key j only if own - window_left <= j <= own + window_right, beside what the mask
   * says; own is i for causal_top_left and else i + kv_len - q_len. -1: no limit. */
  int64_t window_left, window_right;
  int64_t head_dim_v; /* of v, o, d_o and dv; a multiple of 8, at most 256 */

  /* Not 0: each request of the batch has its own lengths, which only flashbench_tensors has, on the
   * device; a length may be 0. q_len and kv_len are then the longest, and the mask and the window
   * hold for each request by itself. In the layouts bshd and bhsd requests are padded to the
   * longest: the rows behind a request's end are NaN in inputs and do not count in outputs. */
  int32_t lengths;
  int64_t q_tokens, kv_tokens; /* of all requests together, without padding */

  int32_t rows_without_keys; /* not 0: some query row sees no key */

  /* Not 0: a paged K/V cache, forward only. k and v are then pools of pages of so many rows, and a
   * block table, which only flashbench_tensors has, on the device, says which pages hold the rows
   * of a request. layout is that of q and o alone. What is in no request's rows is NaN: unused
   * pages, and the rows of a last page behind the request's end. Requests may share pages. */
  int64_t page_size;
  int64_t pool_pages;
  int64_t table_width; /* entries for each request: at least the pages of the longest */
} flashbench_problem;

typedef struct flashbench_device {
  size_t size;
  int32_t kind;
  int32_t index;              /* CUDA's ordinal */
  int32_t compute_capability; /* 10 * major + minor, e.g. 90; 0 on a CPU */
  int32_t threads;            /* that a CPU plugin may use; streaming multiprocessors of a GPU */
} flashbench_device;

/* A tensor [batch, heads, length, head_dim], whatever its layout. Of a ragged one the length is the
 * longest and the stride of the batch 0: row i of request b is row cu_seqlens[b] + i. A pool of
 * pages is [pool_pages, kv_heads, page_size, head_dim], in any order of dimensions in memory. */
typedef struct flashbench_tensor {
  void* data; /* of the first element; in the device's memory */
  int32_t dtype;
  int64_t sizes[4];
  int64_t strides[4]; /* in elements; strides[3] is 1 */
} flashbench_tensor;

/* All tensors of a run. Forward reads q, k, v and writes o, logsumexp. Backward reads q, k, v, o,
 * logsumexp, d_o and writes dq, dk, dv; its o and logsumexp are exact, rounded once. Tensors that a
 * pass does not use have null data. Outputs start as NaN; inputs must not be written. */
typedef struct flashbench_tensors {
  size_t size;
  flashbench_tensor q, k, v;
  flashbench_tensor o;
  float* logsumexp; /* dense [batch, q_heads, q_len], ragged [q_heads, q_tokens]: the natural
                     * logarithm of the sum of exp(S) over the visible keys; -inf, with o = 0, for a
                     * row that sees none */
  flashbench_tensor d_o;
  flashbench_tensor dq, dk, dv;

  /* If the problem has lengths: how many queries, or keys, the requests before request b have
   * together; [batch + 1], so that the last number is the total. In the device's memory, at the
   * same address in every run of a session. Else null. */
  const int32_t *cu_seqlens_q, *cu_seqlens_k;

  /* If the problem has pages: row i of request b is row i % page_size of page
   * block_table[b * block_table_stride + i / page_size]. In the device's memory. Entries behind a
   * request's last page are 2,147,480,000, which is no page of any pool. Else null. */
  const int32_t* block_table;
  int64_t block_table_stride; /* at least table_width */
} flashbench_tensors;

/* A prepared problem: the plugin's own type. */
typedef struct flashbench_session flashbench_session;

typedef struct flashbench_plugin {
  size_t size;             /* sizeof(flashbench_plugin) */
  const char* description; /* a line for `flashbench list` */
  int32_t device_kind;     /* on which it runs */

  /* Returns FLASHBENCH_OK, or FLASHBENCH_UNSUPPORTED with a sentence in `why`. workspace_bytes and
   * prepare may still refuse the problem. */
  flashbench_status (*supports)(const flashbench_problem*, const flashbench_device*, char* why,
                                size_t why_bytes);

  /* Bytes that the tool allocates, and counts, for a session. Null: none. */
  flashbench_status (*workspace_bytes)(const flashbench_problem*, const flashbench_device*,
                                       int64_t* bytes, char* why, size_t why_bytes);

  /* Untimed. The tool reads the session only if the status is FLASHBENCH_OK. The device is idle
   * before the call, and the tool waits for it afterwards. The workspace is aligned like contiguous
   * tensors, starts as NaN, and is not touched by the tool afterwards. Null if its size is 0. */
  flashbench_status (*prepare)(const flashbench_problem*, const flashbench_device*, void* workspace,
                               int64_t workspace_bytes, flashbench_session**, char* why,
                               size_t why_bytes);

  /* All of the timed work. `stream` is a cudaStream_t; null on a CPU. */
  flashbench_status (*run)(flashbench_session*, const flashbench_tensors*, void* stream, char* why,
                           size_t why_bytes);

  void (*destroy)(flashbench_session*);

  /* The kernel that runs, e.g. "fwd_sm90 128x128x2". */
  const char* (*kernel)(const flashbench_session*);

  /* Bytes that the loops of a run read and write, tile by tile, from any level of memory. Null, or
   * a negative result: not known. */
  int64_t (*requested_bytes)(const flashbench_session*);

  uint64_t features; /* FLASHBENCH_FEATURE_ bits; 0 for a table that ends before this member */
} flashbench_plugin;

extern FLASHBENCH_PLUGIN_EXPORT const uint32_t flashbench_plugin_abi_version;
extern FLASHBENCH_PLUGIN_EXPORT const flashbench_plugin flashbench_plugin_table;

#ifdef __cplusplus
}
#endif

#endif /* FLASHBENCH_PLUGIN_H */
