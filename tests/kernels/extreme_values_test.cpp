// Inputs whose correct outputs are known exactly, or that break careless kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/half.h"
#include "tests/kernels/run_kernel.h"

namespace flashbench::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Problem forward_problem(int64_t q_len, int64_t kv_len, Mask mask = Mask::none) {
  Problem p;
  p.mask = mask;
  p.q_len = q_len;
  p.kv_len = kv_len;
  p.head_dim = 16;
  p.scale = 1.0;
  return p;
}

// Runs every forward kernel on every target and hands its outputs to `check`.
template <typename Check>
void for_every_forward(const RandomInputs& inputs, const Check& check) {
  ThreadPool pool(2);
  for_every_target([&](const std::string& target) {
    for (const AttentionKernel* kernel : cpu_kernels(Pass::forward)) {
      SCOPED_TRACE(std::string(kernel->name) + " " + target);
      CheckedOutputs outputs(inputs.problem());
      run_kernel(*kernel, inputs, outputs, pool);
      check(outputs);
    }
  });
}

TEST(ExtremeValues, EqualScoresGiveTheExactMean) {
  RandomInputs inputs(forward_problem(33, 256));
  inputs.fill(0, [](auto...) { return 0.0f; });
  inputs.fill(2, [](auto, auto, int64_t row, int64_t column) {
    return static_cast<float>((row + column) % 4);  // every column's mean is 1.5
  });
  for_every_forward(inputs, [&](const CheckedOutputs& out) {
    for (int64_t row = 0; row < 33; ++row) {
      for (int64_t c = 0; c < 16; ++c) ASSERT_EQ(out.o(0, 0, row, c), 1.5f) << row << " " << c;
      ASSERT_NEAR(out.logsumexp(0, 0, row), std::log(256.0), 1e-6);
    }
  });
}

// The best key's score is 1600 above the second best: O is that key's row of V, bit for bit.
TEST(ExtremeValues, OneKeyTakesAll) {
  RandomInputs inputs(forward_problem(40, 300));
  // A query row selects the keys of its column; the last of them is the largest.
  const auto column_of = [](int64_t query) { return query * 7 % 16; };
  const auto best = [&](int64_t query) { return 272 + column_of(query); };
  inputs.fill(0, [&](auto, auto, int64_t row, int64_t column) {
    return column == column_of(row) ? 100.0f : 0.0f;
  });
  inputs.fill(1, [](auto, auto, int64_t row, int64_t column) {
    return row < 288 && column == row % 16 ? static_cast<float>(row) : 0.0f;
  });
  inputs.fill(2, [](auto, auto, int64_t row, int64_t column) {
    return std::sin(static_cast<float>(row * 16 + column));
  });
  for_every_forward(inputs, [&](const CheckedOutputs& out) {
    for (int64_t row = 0; row < 40; ++row) {
      for (int64_t c = 0; c < 16; ++c) {
        ASSERT_EQ(out.o(0, 0, row, c), std::sin(static_cast<float>(best(row) * 16 + c))) << row;
      }
    }
  });
}

// For scores of any size, even sizes that look like a mask of finite size.
TEST(ExtremeValues, OneKeyReturnsItsValue) {
  for (const float score : {-524288.0f, -120.0f, 120.0f, 1e30f}) {
    RandomInputs inputs(forward_problem(3, 1));
    inputs.fill(0, [](auto, auto, auto, int64_t column) { return column == 0 ? 1.0f : 0.0f; });
    inputs.fill(1, [&](auto, auto, auto, int64_t column) { return column == 0 ? score : 0.0f; });
    inputs.fill(2,
                [](auto, auto, auto, int64_t column) { return 0.1f * static_cast<float>(column); });
    for_every_forward(inputs, [&](const CheckedOutputs& out) {
      for (int64_t c = 0; c < 16; ++c) ASSERT_EQ(out.o(0, 0, 2, c), 0.1f * static_cast<float>(c));
      ASSERT_NEAR(out.logsumexp(0, 0, 2), score, 1e-6 * std::abs(score));
    });
  }
}

// Every 16-bit number: 2^16 of them as the values of 64 batches of 64 heads.
TEST(ExtremeValues, OneKeyReturnsEveryNumberOfItsDtype) {
  for (const Dtype dtype : {Dtype::fp16, Dtype::bf16}) {
    for (const int64_t q_len : {1, 17}) {  // by chunks of keys, by tiles of queries
      Problem p = forward_problem(q_len, 1);
      p.dtype = dtype;
      p.batch = p.q_heads = p.kv_heads = 64;
      const auto number = [&](int64_t b, int64_t h, int64_t column) {
        const auto bits = static_cast<uint16_t>((b * 64 + h) * 16 + column);
        return load_element(&bits, dtype, 0);
      };
      RandomInputs inputs(p);
      inputs.fill(2,
                  [&](int64_t b, int64_t h, auto, int64_t column) { return number(b, h, column); });
      for_every_forward(inputs, [&](const CheckedOutputs& out) {
        for (int64_t b = 0; b < 64; ++b) {
          for (int64_t h = 0; h < 64; ++h) {
            for (int64_t column = 0; column < 16; ++column) {
              const float expected = number(b, h, column), found = out.o(b, h, q_len - 1, column);
              ASSERT_TRUE(std::isnan(expected) ? std::isnan(found) : found == expected)
                  << name(dtype) << " " << expected << " " << found;
            }
          }
        }
      });
    }
  }
}

TEST(ExtremeValues, RowsWithoutKeysAreZero) {
  for (const Dtype dtype : kUnscaledDtypes) {
    Problem p = forward_problem(70, 30, Mask::causal_bottom_right);
    p.dtype = dtype;
    for_every_forward(RandomInputs(p), [&](const CheckedOutputs& out) {
      for (int64_t row = 0; row < 40; ++row) {
        for (int64_t c = 0; c < 16; ++c) ASSERT_EQ(out.o(0, 0, row, c), 0.0f) << row;
        ASSERT_EQ(out.logsumexp(0, 0, row), -kInfinity);
      }
      for (int64_t c = 0; c < 16; ++c) ASSERT_NE(out.o(0, 0, 40, c), 0.0f);
    });
  }
}

// A NaN in one row of K reaches all queries that see it, and no others.
TEST(ExtremeValues, NanReachesExactlyTheQueriesThatSeeIt) {
  RandomInputs inputs(forward_problem(200, 200, Mask::causal_top_left));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  inputs.fill(1, [&](auto, auto, int64_t row, auto) { return row == 77 ? nan : 0.5f; });
  for_every_forward(inputs, [&](const CheckedOutputs& out) {
    for (int64_t row = 0; row < 200; ++row) {
      ASSERT_EQ(std::isnan(out.o(0, 0, row, 3)), row >= 77) << row;
      ASSERT_EQ(std::isnan(out.logsumexp(0, 0, row)), row >= 77) << row;
    }
  });
}

// The same for NaN and infinity in V, which reach their column only.
TEST(ExtremeValues, NanInVReachesExactlyTheQueriesThatSeeIt) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Mask mask : {Mask::causal_top_left, Mask::causal_bottom_right}) {
    for (const float value : {nan, kInfinity, -kInfinity}) {
      RandomInputs inputs(forward_problem(200, 230, mask));
      const int64_t shift = mask == Mask::causal_bottom_right ? 30 : 0;
      inputs.fill(2, [&](auto, auto, int64_t row, int64_t column) {
        return row == 77 && column == 3 ? value : 0.5f;
      });
      for_every_forward(inputs, [&](const CheckedOutputs& out) {
        for (int64_t row = 0; row < 200; ++row) {
          const bool sees = row + shift >= 77;
          ASSERT_EQ(std::isfinite(out.o(0, 0, row, 3)), !sees) << row;
          if (sees && !std::isnan(value)) {
            ASSERT_EQ(out.o(0, 0, row, 3), value) << row;
          }
          ASSERT_TRUE(std::isfinite(out.o(0, 0, row, 4))) << row;
          if (!sees) {
            ASSERT_NEAR(out.o(0, 0, row, 3), 0.5f, 1e-5) << row;  // 200 terms of 2^-24
          }
        }
      });
    }
  }
}

// The same for few queries of a cache of several chunks: a NaN or infinity in K or V of the last
// key, which only the last query sees. Pairs of bf16 have kernels of their own.
TEST(ExtremeValues, FewQueriesSeeOnlyTheirKeys) {
  Problem p = forward_problem(5, 40, Mask::causal_bottom_right), of_pairs = p;
  of_pairs.dtype = Dtype::bf16;
  of_pairs.head_dim = 64;
  for (const int tensor : {1, 2}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      for (const int64_t kv_len : {40, 600}) {
        for (Problem problem : {p, of_pairs}) {
          problem.kv_len = kv_len;
          RandomInputs inputs(problem);
          inputs.fill(tensor, [&](auto, auto, int64_t row, auto) {
            return row == kv_len - 1 ? value : 0.5f;
          });
          for_every_forward(inputs, [&](const CheckedOutputs& out) {
            for (int64_t row = 0; row < 5; ++row) {
              ASSERT_EQ(std::isfinite(out.o(0, 0, row, 3)), row < 4) << row;
            }
          });
        }
      }
    }
  }
}

// A NaN in one row of K: dQ of the queries that see it, dK and dV of the keys that those see.
TEST(ExtremeValues, NanInKReachesExactlyTheGradientsOfTheQueriesThatSeeIt) {
  Problem p = forward_problem(200, 230, Mask::causal_top_left);
  p.pass = Pass::backward;
  RandomInputs inputs(p);
  inputs.fill(1, [&](auto, auto, int64_t row, int64_t column) {
    return row == 77 ? std::numeric_limits<float>::quiet_NaN()
                     : std::sin(static_cast<float>(row * 16 + column));
  });
  ThreadPool pool(2);
  for_every_target([&](const std::string& target) {
    for (const AttentionKernel* kernel : cpu_kernels(Pass::backward)) {
      SCOPED_TRACE(std::string(kernel->name) + " " + target);
      CheckedOutputs outputs(p);
      run_kernel(*kernel, inputs, outputs, pool);
      const Outputs out = outputs.view();
      const auto is_nan = [](const TensorView& t, int64_t row) {
        return std::isnan(static_cast<const float*>(t.data)[t.offset(0, 0, row) + 5]);
      };
      for (int64_t row = 0; row < 230; ++row) {
        if (row < 200) {
          ASSERT_EQ(is_nan(out.dq, row), row >= 77) << row;
        }
        ASSERT_EQ(is_nan(out.dk, row), row < 200) << row;
        ASSERT_EQ(is_nan(out.dv, row), row < 200) << row;
      }
    }
  });
}

// NaN and infinity in K and V of keys on either side of every query's window, and in the tiles that
// a window ends in.
TEST(ExtremeValues, NothingBesideTheWindowReachesAQuery) {
  ThreadPool pool(2);
  for (const Pass pass : kPasses) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
      Problem p = forward_problem(100, 300);
      p.pass = pass;
      p.window_left = 40;
      p.window_right = 20;
      // Query 30 sees keys 190 to 250; queries from 71 on do not see key 230, and none before 10.
      for (const int64_t spoilt : {int64_t{0}, int64_t{159}, int64_t{230}}) {
        for (const int tensor : {1, 2}) {
          RandomInputs inputs(p);
          inputs.fill(tensor, [&](auto, auto, int64_t row, int64_t column) {
            return row == spoilt ? value : std::sin(static_cast<float>(row * 16 + column));
          });
          const RowRange sees = p.queries_that_see(spoilt);
          for_every_target([&](const std::string& target) {
            for (const AttentionKernel* kernel : cpu_kernels(pass)) {
              SCOPED_TRACE(std::string(kernel->name) + " " + target + " key " +
                           std::to_string(spoilt) + " of tensor " + std::to_string(tensor));
              CheckedOutputs outputs(p);
              run_kernel(*kernel, inputs, outputs, pool);
              const Outputs out = outputs.view();
              const TensorView& queries = pass == Pass::forward ? out.o : out.dq;
              for (int64_t row = 0; row < p.q_len; ++row) {
                if (sees.contains(row)) continue;
                for (int64_t c = 0; c < 16; ++c) {
                  const auto at = static_cast<size_t>(queries.offset(0, 0, row) + c);
                  ASSERT_TRUE(std::isfinite(static_cast<const float*>(queries.data)[at])) << row;
                }
              }
              if (pass == Pass::forward || !sees.empty()) continue;
              for (const TensorView& keys : {out.dk, out.dv}) {
                for (int64_t i = 0; i < keys.elements(); ++i) {
                  ASSERT_TRUE(std::isfinite(static_cast<const float*>(keys.data)[i])) << i;
                }
              }
            }
          });
        }
      }
    }
  }
}

// The logsumexp lies below -88.7, where a backward pass that scores padding as 0 overflows.
TEST(ExtremeValues, GradientsOfVeryNegativeScores) {
  Problem p = forward_problem(65, 97);
  p.pass = Pass::backward;
  p.scale = -3.0;
  RandomInputs inputs(p);
  inputs.fill(0, [](auto...) { return 2.0f; });
  inputs.fill(
      1, [](auto, auto, int64_t row, auto) { return 2.0f + 0.001f * static_cast<float>(row); });
  ASSERT_LT(inputs.view().logsumexp[0], -150);
  const Expectation expected(inputs);
  ThreadPool pool(2);
  for_every_target([&](const std::string& target) {
    for (const AttentionKernel* kernel : cpu_kernels(Pass::backward)) {
      SCOPED_TRACE(std::string(kernel->name) + " " + target);
      CheckedOutputs outputs(p);
      run_kernel(*kernel, inputs, outputs, pool);
      expect_correct(p, expected, outputs.view());
    }
  });
}

}  // namespace
}  // namespace flashbench::kernels
