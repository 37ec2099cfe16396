#include "kernels/sm90/forward_launch.h"

#include <algorithm>
#include <numbers>
#include <numeric>

#include "attention/pages.h"
#include "kernels/common/fused_forward.h"
#include "kernels/common/mask.h"
#include "kernels/common/requests.h"
#include "kernels/sm90/tensor_map.h"

namespace flashbench::kernels::sm90 {

int64_t q_blocks_of(RowRange queries, int block_q) {
  return (queries.size() + block_q - 1) / block_q;
}

int64_t q_block_slots(const Problem& p, int block_q) {
  if (p.lengths) return block_slots(p.q_tokens(), p.batch, block_q);
  return q_blocks_of({0, p.q_len}, block_q) * p.batch;
}

int64_t q_blocks(const Problem& p, int block_q) {
  return is_by_request(p) ? q_block_slots(p, block_q) : q_blocks_of({0, p.q_len}, block_q);
}

int64_t tiles(const Problem& p, int64_t q_blocks) {
  return q_blocks * p.q_heads * (is_by_request(p) ? 1 : p.batch);
}

Arguments common_arguments(const Launch& at, const Outputs& out, void* workspace) {
  const Problem& p = at.problem;
  return {.o = out.o.data,
          .logsumexp = out.logsumexp,
          .o_batch_stride = out.o.batch_stride,
          .o_head_stride = out.o.head_stride,
          .o_row_stride = out.o.row_stride,
          .heads = static_cast<int>(p.q_heads),
          .heads_per_kv_head = static_cast<int>(p.heads_per_kv_head()),
          .q_len = static_cast<int>(p.q_len),
          .kv_len = static_cast<int>(p.kv_len),
          .head_dim = static_cast<int>(p.head_dim),
          .q_blocks = static_cast<int>(q_blocks(p, at.blocks.q)),
          .last_taken = static_cast<unsigned*>(workspace),
          .scale_log2 = static_cast<float>(p.softmax_scale() * std::numbers::log2e_v<double>),
          .page_size = Divisor(std::min(p.page_size.value_or(kMaxLength), kMaxLength))};
}

Arguments arguments_by_request(const Launch& at, const Inputs& in, const Outputs& out,
                               void* workspace) {
  const Problem& p = at.problem;
  Arguments a = common_arguments(at, out, workspace);
  const auto split = [](CUtensorMap& map, RowSteps& steps, const RequestMap& both) {
    map = both.map;
    steps = both.steps;
  };
  const int64_t rows = at.blocks.kv;
  const int box_rows = static_cast<int>(p.is_paged() ? std::gcd(*p.page_size, rows) : rows);
  split(a.q, a.q_steps, request_map(in.q, kConsumerRows));
  split(a.k, a.k_steps, request_map(p.is_paged() ? pool_view(in.k, p) : in.k, box_rows));
  split(a.v, a.v_steps, request_map(p.is_paged() ? pool_view(in.v, p) : in.v, box_rows));
  split(a.staged_o, a.o_steps, request_map(out.o, kWarpRows));
  a.section_heads = static_cast<int>(section_heads(all_requests_as_one(p), at.blocks, at.device));
  a.cu_seqlens_q = at.cu_seqlens_q;
  a.cu_seqlens_k = at.cu_seqlens_k;
  a.logsumexp_batch_stride = p.is_ragged() ? 0 : p.q_heads * p.q_len;
  a.logsumexp_head_stride = p.is_ragged() ? p.q_tokens() : p.q_len;
  a.requests = Divisor(p.batch);
  a.request_blocks = static_cast<int>(q_blocks_of({0, p.q_len}, at.blocks.q));
  a.packed = p.is_ragged();
  a.top_left = p.mask == Mask::causal_top_left;
  a.left = window_keys(p.window_left);
  a.right = p.mask == Mask::none ? window_keys(p.window_right) : 0;
  a.block_table = in.k.pages.table;
  a.table_stride = in.k.pages.stride;
  a.box_rows = box_rows;
  return a;
}

}  // namespace flashbench::kernels::sm90
