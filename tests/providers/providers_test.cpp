#include "providers/provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "attention/half.h"
#include "tests/kernels/attention_check.h"

namespace flashbench {
namespace {

std::vector<const Provider*> cpu_providers() {
  std::vector<const Provider*> found;
  for (const auto& provider : all_providers()) {
    if (provider->device_kind() != DeviceKind::cpu || provider->on_request_only()) continue;
    found.push_back(provider.get());
  }
  return found;
}

// Runs a session on poisoned outputs and checks them.
void expect_session_correct(Session& session, const RandomInputs& inputs) {
  const Expectation expected(inputs);
  session.prepare_inputs(inputs.view());
  CheckedOutputs outputs(inputs.problem());
  session.run(inputs.view(), outputs.view());
  expect_correct(inputs.problem(), expected, outputs.view());
}

class EveryProblem : public testing::TestWithParam<std::tuple<Pass, Mask, int64_t>> {};

TEST_P(EveryProblem, MatchesTheReference) {
  const auto [pass, mask, head_dim] = GetParam();
  const auto device = make_host_device(2);
  std::vector<Problem> problems = varied_problems(pass, mask, head_dim);
  for (const Problem& p : windowed_problems(pass, mask, head_dim)) problems.push_back(p);
  for (const Problem& p : problems) {
    const RandomInputs inputs(p);
    const RandomInputs before = inputs;
    const Expectation expected(inputs);
    for (const Provider* provider : cpu_providers()) {
      SCOPED_TRACE(std::string(provider->name()) + " " + p.id());
      ASSERT_EQ(provider->why_unsupported(p, device->info()), std::nullopt);
      const auto session = provider->prepare(p, *device);
      session->prepare_inputs(inputs.view());
      CheckedOutputs outputs(p);
      session->run(inputs.view(), outputs.view());
      expect_correct(p, expected, outputs.view());
      EXPECT_TRUE(inputs == before) << "inputs were changed";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, EveryProblem,
                         testing::Combine(testing::ValuesIn(kPasses), testing::ValuesIn(kMasks),
                                          testing::Values<int64_t>(8, 64, 96)),
                         [](const auto& test_info) {
                           return std::string(name(std::get<0>(test_info.param))) + "_" +
                                  std::string(name(std::get<1>(test_info.param))) + "_d" +
                                  std::to_string(std::get<2>(test_info.param));
                         });

Problem problem(Pass pass, Dtype dtype = Dtype::fp32) {
  Problem p;
  p.pass = pass;
  p.dtype = dtype;
  p.mask = Mask::causal_bottom_right;
  p.q_heads = 4;
  p.kv_heads = 2;
  p.q_len = 50;
  p.kv_len = 70;
  p.head_dim = 32;
  return p;
}

TEST(CpuProviders, HaveDistinctNamesAndDescriptions) {
  std::set<std::string_view> names;
  for (const Provider* provider : cpu_providers()) {
    EXPECT_TRUE(names.insert(provider->name()).second) << provider->name();
    EXPECT_FALSE(provider->description().empty());
  }
  EXPECT_TRUE(names.contains("naive"));
  EXPECT_TRUE(names.contains("tiled"));
}

TEST(CpuProviders, AllocateTheWorkspaceThatTheySay) {
  const auto device = make_host_device(2);
  for (const Provider* provider : cpu_providers()) {
    for (const Pass pass : kPasses) {
      for (const Dtype dtype : kUnscaledDtypes) {
        for (const auto& head_dim_v : {std::optional<int64_t>(), {16}, {64}}) {
          Problem p = problem(pass, dtype);
          p.head_dim_v = head_dim_v;
          const auto session = provider->prepare(p, *device);
          EXPECT_EQ(device->used().workspace, provider->workspace_bytes(p, device->info()))
              << provider->name() << " " << p.id();
          EXPECT_GE(session->requested_bytes(), p.compulsory_bytes());
          EXPECT_FALSE(session->kernel().empty());
        }
      }
    }
  }
  EXPECT_EQ(device->used().workspace, 0);
}

TEST(CpuProviders, TakeAHeadDimOfVsOwn) {
  const auto device = make_host_device(2);
  for (const Provider* provider : cpu_providers()) {
    EXPECT_THAT(provider->optional_axes(), testing::Contains("head_dim_v")) << provider->name();
    for (const Pass pass : kPasses) {
      for (const Mask mask : kMasks) {
        for (const auto& [head_dim, head_dim_v] :
             {std::pair<int64_t, int64_t>{192, 128}, {24, 40}}) {
          for (const Problem& p : varied_problems(pass, mask, head_dim, head_dim_v)) {
            SCOPED_TRACE(std::string(provider->name()) + " " + p.id());
            expect_session_correct(*provider->prepare(p, *device), RandomInputs(p));
          }
        }
      }
    }
  }
}

TEST(CpuProviders, TakeRequestsOfDifferentLengths) {
  const auto device = make_host_device(2);
  for (const Provider* provider : cpu_providers()) {
    EXPECT_THAT(provider->optional_axes(), testing::Contains("lengths")) << provider->name();
    for (const Pass pass : kPasses) {
      for (const Mask mask : kMasks) {
        for (const Problem& p : problems_of_lengths(pass, mask, 32)) {
          SCOPED_TRACE(std::string(provider->name()) + " " + p.id() + " " + p.lengths->id());
          const RandomInputs inputs(p);
          const RandomInputs before = inputs;
          const auto session = provider->prepare(p, *device);
          EXPECT_EQ(device->used().workspace, provider->workspace_bytes(p, device->info()));
          EXPECT_GE(session->requested_bytes(), p.compulsory_bytes());
          session->prepare_inputs(inputs.view());
          CheckedOutputs outputs(p);
          session->run(inputs.view(), outputs.view());
          expect_requests_correct(inputs, outputs);
          EXPECT_TRUE(inputs == before) << "inputs were changed";
        }
      }
    }
  }
}

// What a request gets does not depend on what else is in its batch. A window's first key moves the
// tiles of `tiled`, and the batch the chunks over which its backward pass sums, hence not those.
TEST(CpuProviders, ARequestAloneGetsTheBitsThatItGetsInItsBatch) {
  const auto device = make_host_device(2);
  for (const Provider* provider : cpu_providers()) {
    for (const Pass pass : kPasses) {
      if (pass == Pass::backward && provider->name() == "tiled") continue;
      for (const Mask mask : kMasks) {
        for (Problem p : problems_of_lengths(pass, mask, 32)) {
          p.window_left = p.window_right = std::nullopt;
          SCOPED_TRACE(std::string(provider->name()) + " " + p.id() + " " + p.lengths->id());
          const RandomInputs inputs(p);
          const auto run = [&](const RandomInputs& given, CheckedOutputs& outputs) {
            const auto session = provider->prepare(given.problem(), *device);
            session->prepare_inputs(given.view());
            session->run(given.view(), outputs.view());
          };
          CheckedOutputs together(p);
          run(inputs, together);
          for (int64_t b = 0; b < p.batch; ++b) {
            if (p.q_len_of(b) == 0 || p.kv_len_of(b) == 0) continue;
            CheckedOutputs alone(p.request(b));
            run(inputs.request(b), alone);
            EXPECT_TRUE(together.request(b) == alone) << "request " << b;
          }
        }
      }
    }
  }
}

// Runs `inputs` (RandomInputs, PagedInputs).
template <typename Inputs>
CheckedOutputs outputs_of(const Provider& provider, Device& device, const Inputs& inputs) {
  const auto session = provider.prepare(inputs.problem(), device);
  EXPECT_EQ(device.used().workspace, provider.workspace_bytes(inputs.problem(), device.info()));
  EXPECT_GE(session->requested_bytes(), inputs.problem().compulsory_bytes());
  CheckedOutputs outputs(inputs.problem());
  session->run(inputs.view(), outputs.view());
  return outputs;
}

// The pages of one request of a batch.
BlockTable row_of(const BlockTable& table, int64_t request) {
  BlockTable row(1, table.width(), table.pages());
  for (int64_t i = 0; i < table.width(); ++i) row.at(0, i) = table.at(request, i);
  return row;
}

// Keys are read at the same places of a request in the same order, wherever its pages are in a pool
// of any size.
TEST(CpuProviders, PagesChangeNoBit) {
  const auto device = make_host_device(2);
  for (const Provider* provider : cpu_providers()) {
    for (const std::string_view axis :
         {"page_size", "kv_layout", "page_order", "shared_prefix", "block_table"}) {
      EXPECT_THAT(provider->optional_axes(), testing::Contains(axis)) << provider->name();
    }
    uint64_t seed = 0;
    for (const Mask mask : kMasks) {
      for (const Problem& p : problems_of_lengths(Pass::forward, mask, 32)) {
        const RandomInputs contiguous(p);
        const CheckedOutputs expected = outputs_of(*provider, *device, contiguous);
        for (const int64_t page_size : {1, 7, 16, 48, 128}) {
          for (const KvLayout layout : kKvLayouts) {
            SCOPED_TRACE(std::string(provider->name()) + " " + p.id() + " page_size " +
                         std::to_string(page_size) + " " + std::string(name(layout)));
            const auto unused = static_cast<int64_t>(++seed % 9);
            const PagedInputs paged(contiguous, page_size, layout,
                                    random_table(p, page_size, unused, seed));
            CheckedOutputs together = outputs_of(*provider, *device, paged);
            EXPECT_TRUE(together.same_bits(expected));
            // A window's first key moves the tiles of `tiled`.
            for (int64_t b = 0; b < p.batch && !p.has_window(); ++b) {
              if (p.q_len_of(b) == 0 || p.kv_len_of(b) == 0) continue;
              const RandomInputs one = contiguous.request(b);
              const PagedInputs alone(one, page_size, layout,
                                      row_of(*paged.problem().block_table, b));
              EXPECT_TRUE(outputs_of(*provider, *device, alone).same_bits(together.request(b)))
                  << "request " << b;
            }
          }
        }
      }
    }
  }
}

// A factor of two is exact in every step, as long as O is neither subnormal nor too large.
TEST(CpuProviders, TwiceVGivesTwiceOBitForBit) {
  const auto device = make_host_device(2);
  for (const Provider* provider : cpu_providers()) {
    for (const Mask mask : kMasks) {
      for (const Problem& p : problems_of_lengths(Pass::forward, mask, 32)) {
        RandomInputs inputs(p);
        const CheckedOutputs once = outputs_of(*provider, *device, inputs);
        const auto twice_v = [v = RandomInputs(p)](int64_t b, int64_t h, int64_t row, int64_t c) {
          const ConstTensorView view = v.view().v;
          return 2 * load_element(view.data, view.dtype, view.offset(b, h, row) + c);
        };
        inputs.fill(2, twice_v);
        const CheckedOutputs twice = outputs_of(*provider, *device, inputs);
        const PagedInputs paged(inputs, 16, KvLayout::paged_hnd, random_table(p, 16, 3, 5));
        EXPECT_TRUE(outputs_of(*provider, *device, paged).same_bits(twice)) << p.id();
        for (int64_t b = 0; b < p.batch; ++b) {
          for (int64_t h = 0; h < p.q_heads; ++h) {
            for (int64_t row = 0; row < p.q_len_of(b); ++row) {
              ASSERT_EQ(twice.logsumexp(b, h, row), once.logsumexp(b, h, row)) << p.id();
              for (int64_t c = 0; c < p.value_dim(); ++c) {
                const bool is_subnormal =
                    p.dtype == Dtype::fp16 && std::abs(once.o(b, h, row, c)) < 0x1p-14;
                if (is_subnormal) continue;
                ASSERT_EQ(twice.o(b, h, row, c), 2 * once.o(b, h, row, c))
                    << provider->name() << " " << p.id();
              }
            }
          }
        }
      }
    }
  }
}

// A sequence in two requests, by the same pages or by two copies of them.
TEST(CpuProviders, SharedPagesChangeNoBit) {
  const auto device = make_host_device(2);
  for (const Provider* provider : cpu_providers()) {
    Problem p = problem(Pass::forward, Dtype::bf16);
    p.set_lengths(
        std::make_shared<const Lengths>(std::vector<RequestLengths>{{9, 50}, {3, 50}, {5, 37}}));
    RandomInputs contiguous(p);
    for (const int tensor : {1, 2}) {  // of all requests alike
      contiguous.fill(tensor, [&](int64_t, int64_t h, int64_t row, int64_t c) {
        return static_cast<float>((tensor * 31 + h * 17 + row * 7 + c * 3) % 23) / 8 - 1;
      });
    }
    const CheckedOutputs expected = outputs_of(*provider, *device, contiguous);
    BlockTable shared(3, 5, 6);
    for (int64_t b = 0; b < 3; ++b) {
      for (int64_t i = 0; i < 4 && i * 16 < p.kv_len_of(b); ++i) {
        shared.at(b, i) = static_cast<int32_t>(5 - i);
      }
    }
    const PagedInputs paged(contiguous, 16, KvLayout::paged_nhd, shared);
    EXPECT_TRUE(outputs_of(*provider, *device, paged).same_bits(expected)) << provider->name();
  }
}

// A session serves one set of inputs after another, and each as often as it likes.
TEST(CpuProviders, ServeNewInputsAndRepeatTheirBits) {
  const auto device = make_host_device(2);
  for (const Provider* provider : cpu_providers()) {
    for (const Pass pass : kPasses) {
      SCOPED_TRACE(std::string(provider->name()) + " " + std::string(name(pass)));
      const auto session = provider->prepare(problem(pass), *device);
      const RandomInputs first(problem(pass), 1), second(problem(pass), 2);
      expect_session_correct(*session, first);
      expect_session_correct(*session, second);
      CheckedOutputs once(problem(pass)), again(problem(pass));
      session->run(second.view(), once.view());
      session->run(second.view(), again.view());
      EXPECT_TRUE(once == again);
    }
  }
}

TEST(CpuProviders, NaiveNeedsMemoryForTheScores) {
  const auto device = make_host_device(1);
  Problem p = problem(Pass::forward);
  p.q_len = p.kv_len = 512;
  const int64_t scores = 4 * 512 * 512 * 4;
  for (const Provider* provider : cpu_providers()) {
    const int64_t bytes = provider->workspace_bytes(p, device->info());
    if (provider->name() == "naive") {
      EXPECT_EQ(bytes, scores);
    }
    if (provider->name() == "tiled") {
      EXPECT_LT(bytes, scores / 4);
    }
  }
}

TEST(CpuProviders, ThrowWhereThereIsNoRoom) {
  const auto device = make_host_device(1);
  Problem p = problem(Pass::forward);
  p.q_len = p.kv_len = 1 << 22;
  for (const Provider* provider : cpu_providers()) {
    if (provider->name() == "naive") {
      EXPECT_THROW(provider->prepare(p, *device), OutOfMemory);
    }
  }
}

}  // namespace
}  // namespace flashbench
