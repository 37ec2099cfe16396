// Tiled attention in the way of correct kernels (online softmax over key tiles, fp32 accumulation,
// P and dS in the dtype or in fp32), computed row by row, with optional defects.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "attention/enum_names.h"
#include "attention/problem.h"
#include "attention/tensors.h"
#include "host/thread_pool.h"

namespace flashbench::verify {

enum class Defect {
  none,
  zeros,
  dropped_key_tile,       // the middle one
  last_key_ignored,       // of every row
  scale_one_percent,      // too large
  p_in_bf16,              // where it should be in fp16 or fp32
  other_causal_corner,    // top left for bottom right and the other way round
  next_kv_head,           // GQA: the wrong K/V head
  missing_rescale,        // of O when the running maximum grows
  unmasked_padding,       // 0-filled keys up to the tile's end get score 0
  wrong_logsumexp,        // max instead of max + log(sum)
  stale_row,              // the last row is never written
  stale_output,           // a MutantProvider's: every run gives what the first one gave
  accumulator_race,       // two threads add to the last row's O or dQ, and one update is lost
  d_omitted,              // dS = P dP
  dq_misses_tile,         // the last key tile that a row sees
  dk_misses_rows,         // the last 16 query rows
  dv_unnormalised,        // P of the first tile without its sum
  window_left_too_long,   // by one key
  window_right_too_long,  // by one key
  window_at_top_left,     // where it should be aligned to the bottom right corner
  window_ends_unmasked,   // the keys beside the window in its first and last tile are seen
  v_stride_of_head_dim,   // rows of V are head_dim apart, not head_dim_v
  d_over_head_dim,        // D sums head_dim products, not head_dim_v
  scale_from_head_dim_v,  // 1/sqrt(head_dim_v)
  keys_of_next_request,   // K and V begin one request later
  end_of_keys_unmasked,   // the rows behind a request's last key are seen, up to a tile's end
  longest_diagonal,       // the mask is aligned by the longest lengths
  pages_of_next_request,  // the row of the block table after its own
  table_entry_too_far,    // each page is the one after
  table_stride_floored,   // rows of the table are kv_len / page_size entries apart
  v_from_next_page,       // K's page is right
  page_tail_unmasked,     // all rows of a request's last page are seen
};
}  // namespace flashbench::verify

namespace flashbench {

template <>
inline constexpr auto kNames<verify::Defect> =
    names_of<verify::Defect>({{verify::Defect::none, "none"},
                              {verify::Defect::zeros, "zeros"},
                              {verify::Defect::dropped_key_tile, "dropped_key_tile"},
                              {verify::Defect::last_key_ignored, "last_key_ignored"},
                              {verify::Defect::scale_one_percent, "scale_one_percent"},
                              {verify::Defect::p_in_bf16, "p_in_bf16"},
                              {verify::Defect::other_causal_corner, "other_causal_corner"},
                              {verify::Defect::next_kv_head, "next_kv_head"},
                              {verify::Defect::missing_rescale, "missing_rescale"},
                              {verify::Defect::unmasked_padding, "unmasked_padding"},
                              {verify::Defect::wrong_logsumexp, "wrong_logsumexp"},
                              {verify::Defect::stale_row, "stale_row"},
                              {verify::Defect::stale_output, "stale_output"},
                              {verify::Defect::accumulator_race, "accumulator_race"},
                              {verify::Defect::d_omitted, "d_omitted"},
                              {verify::Defect::dq_misses_tile, "dq_misses_tile"},
                              {verify::Defect::dk_misses_rows, "dk_misses_rows"},
                              {verify::Defect::dv_unnormalised, "dv_unnormalised"},
                              {verify::Defect::window_left_too_long, "window_left_too_long"},
                              {verify::Defect::window_right_too_long, "window_right_too_long"},
                              {verify::Defect::window_at_top_left, "window_at_top_left"},
                              {verify::Defect::window_ends_unmasked, "window_ends_unmasked"},
                              {verify::Defect::v_stride_of_head_dim, "v_stride_of_head_dim"},
                              {verify::Defect::d_over_head_dim, "d_over_head_dim"},
                              {verify::Defect::scale_from_head_dim_v, "scale_from_head_dim_v"},
                              {verify::Defect::keys_of_next_request, "keys_of_next_request"},
                              {verify::Defect::end_of_keys_unmasked, "end_of_keys_unmasked"},
                              {verify::Defect::longest_diagonal, "longest_diagonal"},
                              {verify::Defect::pages_of_next_request, "pages_of_next_request"},
                              {verify::Defect::table_entry_too_far, "table_entry_too_far"},
                              {verify::Defect::table_stride_floored, "table_stride_floored"},
                              {verify::Defect::v_from_next_page, "v_from_next_page"},
                              {verify::Defect::page_tail_unmasked, "page_tail_unmasked"}});

}  // namespace flashbench

namespace flashbench::verify {

inline constexpr std::array kDefects{Defect::zeros,
                                     Defect::dropped_key_tile,
                                     Defect::last_key_ignored,
                                     Defect::scale_one_percent,
                                     Defect::p_in_bf16,
                                     Defect::other_causal_corner,
                                     Defect::next_kv_head,
                                     Defect::missing_rescale,
                                     Defect::unmasked_padding,
                                     Defect::wrong_logsumexp,
                                     Defect::stale_row,
                                     Defect::stale_output,
                                     Defect::accumulator_race,
                                     Defect::d_omitted,
                                     Defect::dq_misses_tile,
                                     Defect::dk_misses_rows,
                                     Defect::dv_unnormalised};
inline constexpr std::array kWindowDefects{
    Defect::window_left_too_long, Defect::window_right_too_long, Defect::window_at_top_left,
    Defect::window_ends_unmasked};
inline constexpr std::array kHeadDimVDefects{Defect::v_stride_of_head_dim, Defect::d_over_head_dim,
                                             Defect::scale_from_head_dim_v};
inline constexpr std::array kLengthsDefects{Defect::keys_of_next_request,
                                            Defect::end_of_keys_unmasked, Defect::longest_diagonal};
inline constexpr std::array kPagesDefects{Defect::pages_of_next_request,
                                          Defect::table_entry_too_far, Defect::table_stride_floored,
                                          Defect::v_from_next_page, Defect::page_tail_unmasked};

struct Simulation {
  int64_t key_tile = 64;
  bool p_in_dtype = true;  // P and dS rounded to the dtype before they are multiplied
  bool ds_of_rounded_p = false;
  bool truncate = false;  // sums round toward zero, which is harsher than tensor cores
  Defect defect = Defect::none;
  bool scores_in_dtype = false;  // also dP, as in a chain of 16-bit GEMMs
  bool ds_scaled = false;        // times the softmax scale before it is rounded

  // Forward: so many parts of the keys, each O of which is rounded to this dtype before they are
  // merged.
  int64_t splits = 1;
  Dtype partials = Dtype::fp32;
};

// Whether the defect can change the outputs of one run with key tiles of this size. Defects of
// lengths and of pages show only where a problem has them, and all others are told for equal
// lengths without pages.
bool shows(Defect, const Problem&, int64_t key_tile);

void simulate(const Problem&, const Inputs&, const Outputs&, const Simulation&, ThreadPool&);

}  // namespace flashbench::verify
