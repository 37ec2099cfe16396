#include "inputs/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "attention/error.h"
#include "attention/half.h"
#include "files/npy.h"
#include "inputs/random_value.h"
#include "tests/temporary_folder.h"

namespace flashbench {
namespace {

TEST(HostTensors, SameValuesInEitherLayout) {
  ThreadPool pool(2);
  Problem problem{.batch = 2, .q_heads = 3, .kv_heads = 3, .q_len = 5, .kv_len = 4, .head_dim = 8};
  const HostTensors bshd(problem, {}, pool);
  problem.layout = Layout::bhsd;
  const HostTensors bhsd(problem, {}, pool);
  const ConstTensorView a = bshd.inputs().k, b = bhsd.inputs().k;
  for (int64_t batch = 0; batch < 2; ++batch) {
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t column = 0; column < 8; ++column) {
          EXPECT_EQ(load_element(a.data, a.dtype, a.offset(batch, head, row) + column),
                    load_element(b.data, b.dtype, b.offset(batch, head, row) + column));
        }
      }
    }
  }
}

TEST(HostTensors, TensorsAndSeedsDiffer) {
  ThreadPool pool(1);
  const Problem problem{.q_len = 4, .kv_len = 4, .head_dim = 8};
  const HostTensors one(problem, {.seed = 1}, pool), two(problem, {.seed = 2}, pool);
  const auto first = [](ConstTensorView view) { return static_cast<const float*>(view.data)[0]; };
  EXPECT_NE(first(one.inputs().q), first(two.inputs().q));
  EXPECT_NE(first(one.inputs().q), first(one.inputs().k));
  EXPECT_NE(first(one.inputs().k), first(one.inputs().v));
}

// Problems with the same number of elements share random tensors, which are made once; other
// problems get their own.
TEST(HostTensors, SameElementsAreSharedAndNoOthers) {
  ThreadPool pool(1);
  const Problem wide{
      .batch = 2, .q_heads = 4, .kv_heads = 4, .q_len = 6, .kv_len = 6, .head_dim = 8};
  Problem tall = wide;
  tall.q_heads = tall.kv_heads = 1;
  tall.q_len = tall.kv_len = 12;
  tall.head_dim = 16;
  const HostTensors first(wide, {}, pool), same(tall, {}, pool);
  EXPECT_EQ(first.inputs().k.data, same.inputs().k.data);

  const auto fresh = [&](Problem problem, const InputSpec& spec) {
    const HostTensors made(problem, spec, pool);
    const ConstTensorView k = made.inputs().k;
    EXPECT_NE(k.data, first.inputs().k.data);
    // Element 9 in the order [batch, length, heads, head_dim]: row 0, head 1.
    const float expected =
        round_to(problem.dtype, random_value(spec.distribution, spec.seed, 1, 9));
    EXPECT_EQ(load_element(k.data, k.dtype, k.offset(0, 1, 0) + 1), expected);
  };
  fresh(wide, {.seed = 2});
  fresh(wide, {.distribution = Distribution::uniform});
  Problem other = wide;
  other.dtype = Dtype::bf16;
  fresh(other, {});
  other = wide;
  other.kv_len = 7;
  fresh(other, {});
  other = wide;
  other.layout = Layout::bhsd;
  fresh(other, {});
}

class NpyInputs : public testing::Test {
 protected:
  std::string write(const std::string& name, NpyArray::Type type, std::vector<int64_t> shape) {
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    const std::vector<float> data(static_cast<size_t>(elements), 1.5f);
    write_npy(folder_ / name, type, shape, data.data());
    return (folder_ / name).string();
  }

  ThreadPool pool_{1};
  TemporaryFolder folder_;
};

TEST_F(NpyInputs, AreReadAndChecked) {
  const Problem problem{.q_heads = 2, .kv_heads = 2, .q_len = 3, .kv_len = 4, .head_dim = 8};
  InputSpec spec{.distribution = Distribution::files,
                 .q = write("q.npy", NpyArray::Type::float32, {1, 3, 2, 8}),
                 .k = write("k.npy", NpyArray::Type::float32, {1, 4, 2, 8}),
                 .v = write("v.npy", NpyArray::Type::float32, {1, 4, 2, 8})};
  EXPECT_EQ(static_cast<const float*>(HostTensors(problem, spec, pool_).inputs().q.data)[47], 1.5f);

  InputSpec wrong_shape = spec;
  wrong_shape.v = write("v3.npy", NpyArray::Type::float32, {1, 3, 2, 8});
  EXPECT_THROW(HostTensors(problem, wrong_shape, pool_), BadInput);
  InputSpec wrong_type = spec;
  wrong_type.k = write("k16.npy", NpyArray::Type::float16, {1, 4, 2, 8});
  EXPECT_THROW(HostTensors(problem, wrong_type, pool_), BadInput);
  InputSpec missing = spec;
  missing.q = "missing.npy";
  EXPECT_THROW(HostTensors(problem, missing, pool_), FileError);
}

}  // namespace
}  // namespace flashbench
