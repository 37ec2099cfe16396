// Another program that runs providers, e.g. scripts/torch_sdpa.py. It is started with the argument
// `serve`, reads requests from its standard input and answers on its standard output, one line of
// JSON each. These are the requests, in the order in which they are made. All but `open` refer to
// objects by address or number:
//
//   open {kind, index, threads, cold_bytes, providers, gpus}
//                               {providers: [{name, description, logsumexp, axes}], facts}
//   allocate {bytes}                                      {address}
//   write, read {address, bytes, file: {path, bytes}}     from the start of the file, and to it
//   poison {address, bytes}                               fills with 0xff
//   poisoned_elements {address, elements, element_bytes}  {count}
//   flip_signs {address, elements, element_bytes}
//   hash {address, bytes, seed}                           {hash}, from 0 to 2^64 - 1
//   prepare {provider, problem}                           {session}
//   prepare_gemm {dtype, size}                            {session}
//   prepare_inputs {session, inputs: {q, k, v, d_o, cu_seqlens_q, cu_seqlens_k, block_table}}
//                               {} or, of a provider that plans for lengths and mask on the host,
//                               {plan_seconds}
//   run {session, outputs: {o, logsumexp | dq, dk, dv}, timed}
//                               {kernel, seconds} or, not timed, {kernel} and, where they are
//                               known, {host_seconds, seconds_behind, workspace_bytes}. A figure
//                               that no clock or allocator could give is an error
//   evict_caches {}
//   close {session}, free {address}
//
// A problem is {pass, dtype, mask, batch, q_heads, kv_heads, q_len, kv_len, head_dim,
// softmax_scale} and, where they have not their default, the optional axes of problems
// (plan/axes.cpp). A provider is asked only for those that its `axes` names; without `axes`, for
// none.
//
// A tensor is {address, dtype, shape, strides} in the order [batch, heads, length, head_dim], the
// strides in elements. providers: the names of those wanted; none: all but those that are on
// request only.
//
// gpus is there if --device names several: the number of each, in the order of the ranks of a
// problem that has the axis `gpus`. The program shares such a problem among them however it likes;
// tensors are those of one device, `index`. A run takes as long as its slowest rank.
// scripts/lib/ranks.py has what a program with a process for each rank needs.
//
// If its requests have lengths of their own, a problem's `lengths` is how they lie: `padded` to
// q_len and kv_len, the longest, or `ragged`: then all tensors, the logsumexp too, are [1, heads,
// tokens, head_dim]. The inputs cu_seqlens_q and cu_seqlens_k are int32 [batch + 1]: how many
// queries, or keys, the requests before each request have. Padding is NaN in inputs, and does not
// count in outputs.
//
// If the problem has a `page_size`, k and v are pools [pages, kv_heads, page_size, head_dim], and
// the input block_table, int32 [batch, pages of the longest request or more], has the pages of each
// request; entries behind its last are no page. What is in no request's rows is NaN. The axes
// kv_layout, page_order, shared_prefix and block_table, which a provider names too, are told by the
// strides and the table alone.
//
// Any answer may instead be {"error": {kind, message}}. The kind is out_of_memory, unsupported,
// bad_input, device_lost (the program cannot continue) or other.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>

#include <string>

namespace flashbench {

class ProgramProcess {
 public:
  using Json = nlohmann::ordered_json;

  // Starts the program, with this process's standard error. Throws BadInput if it cannot be
  // started.
  explicit ProgramProcess(std::string path);
  ~ProgramProcess();
  ProgramProcess(const ProgramProcess&) = delete;
  ProgramProcess& operator=(const ProgramProcess&) = delete;

  // Sends a request and waits for the answer. Throws OutOfMemory, Unsupported, BadInput or
  // std::runtime_error, as the answer says. If the program ends before its first answer, throws
  // BadInput. If it ends later, or lost the device, this process ends too: its parent knows which
  // provider was at work, and starts both again.
  Json ask(const Json& request);

  // Asks the program to take something back: for destructors. If it answers with an error, this
  // process ends, since what the program still holds is unknown.
  void give_back(const Json& request) noexcept;

  pid_t pid() const { return pid_; }

 private:
  std::string line();
  [[noreturn]] void give_up();
  std::string how_it_ended();

  std::string path_;
  pid_t pid_ = -1;
  int socket_ = -1;
  std::string received_;  // not yet processed
  bool answered_ = false;
};

}  // namespace flashbench
