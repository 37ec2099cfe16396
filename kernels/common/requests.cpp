#include "kernels/common/requests.h"

#include <algorithm>

namespace flashbench::kernels {
namespace {

Problem with_lengths(Problem p, int64_t q_len, int64_t kv_len) {
  p.lengths = nullptr;
  p.layout = Layout::bshd;
  p.q_len = std::max<int64_t>(1, q_len);
  p.kv_len = std::max<int64_t>(1, kv_len);
  return p;
}

}  // namespace

Problem average_request(const Problem& p) {
  if (!p.lengths) return p;
  const auto average = [&](int64_t rows) { return (rows + p.batch - 1) / p.batch; };
  return with_lengths(p, average(p.q_tokens()), average(p.kv_tokens()));
}

Problem all_requests_as_one(const Problem& p) {
  Problem all = with_lengths(p, p.q_tokens(), p.kv_tokens());
  all.batch = 1;
  all.mask = Mask::causal_bottom_right;
  return all;
}

}  // namespace flashbench::kernels
