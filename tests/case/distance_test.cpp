#include "case/distance.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace flashbench {
namespace {

HostOutputs zeros(const Problem& p) {
  HostOutputs outputs(p);
  const Outputs view = outputs.view();
  for (const TensorView& tensor : {view.o, view.dq, view.dk, view.dv}) {
    if (tensor.data == nullptr) continue;
    std::memset(tensor.data, 0,
                static_cast<size_t>(tensor.elements() * element_size(tensor.dtype)));
  }
  return outputs;
}

TEST(Distance, IsOverAllElementsThatAreFiniteInBoth) {
  Problem p;
  p.q_len = p.kv_len = 2;
  p.head_dim = 8;
  HostOutputs a = zeros(p), b = zeros(p);
  auto* left = static_cast<float*>(a.view().o.data);
  auto* right = static_cast<float*>(b.view().o.data);
  for (int i = 0; i < 16; ++i) left[i] = right[i] = static_cast<float>(i);
  right[3] += 0.5f;
  right[4] -= 1.0f;
  right[5] = std::numeric_limits<float>::quiet_NaN();
  left[6] = std::numeric_limits<float>::infinity();
  ThreadPool pool(2);
  const Distance found = distance(p, a, b, pool);
  EXPECT_EQ(found.max_abs, 1.0);
  EXPECT_DOUBLE_EQ(found.mean_abs, 1.5 / 14);
}

TEST(Distance, OfTheBackwardPassCountsAllGradients) {
  Problem p;
  p.pass = Pass::backward;
  p.head_dim = 8;
  HostOutputs a = zeros(p), b = zeros(p);
  static_cast<float*>(b.view().dv.data)[7] = 3;
  ThreadPool pool(1);
  const Distance found = distance(p, a, b, pool);
  EXPECT_EQ(found.max_abs, 3.0);
  EXPECT_DOUBLE_EQ(found.mean_abs, 3.0 / 24);
}

}  // namespace
}  // namespace flashbench
