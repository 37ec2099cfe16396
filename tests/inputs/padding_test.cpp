#include "inputs/padding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/half.h"
#include "device/device.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

Problem of_requests(Layout layout, Pass pass = Pass::forward, Dtype dtype = Dtype::fp32) {
  Problem p{.pass = pass, .dtype = dtype, .layout = layout, .q_heads = 4, .kv_heads = 2};
  p.head_dim = 8;
  p.set_lengths(
      std::make_shared<const Lengths>(std::vector<RequestLengths>{{3, 7}, {0, 4}, {5, 0}, {1, 2}}));
  return p;
}

// Calls check(value, whether it is padding) for each element.
template <typename Check>
void for_elements(const ConstTensorView& t, const RequestRows& rows, const Check& check) {
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t row = 0; row < t.rows(b); ++row) {
        for (int64_t c = 0; c < t.head_dim; ++c) {
          check(load_element(t.data, t.dtype, t.offset(b, h, row) + c), row >= rows.count(b));
        }
      }
    }
  }
}

TEST(Padding, OfInputsIsNanAndNothingElse) {
  ThreadPool pool(2);
  for (const Layout layout : kDenseLayouts) {
    for (const Dtype dtype : kUnscaledDtypes) {
      for (const Distribution distribution : {Distribution::normal, Distribution::one_hot}) {
        const Problem p = of_requests(layout, Pass::backward, dtype);
        HostTensors tensors(p, {.distribution = distribution}, pool);
        const Inputs in = tensors.inputs();
        const auto expect_nan = [](float value, bool padding) {
          EXPECT_EQ(std::isnan(value), padding);
        };
        for_elements(in.q, p.lengths->queries(), expect_nan);
        for_elements(in.d_o, p.lengths->queries(), expect_nan);
        for_elements(in.k, p.lengths->keys(), expect_nan);
        for_elements(in.v, p.lengths->keys(), expect_nan);
      }
    }
  }
}

// A kernel may leave out keys whose score is NaN. That would hide that it multiplies V by 0.
TEST(Padding, MayBeNanInVAlone) {
  ThreadPool pool(2);
  const InputSpec spec{.distribution = Distribution::nan_v_padding};
  const Problem p = of_requests(Layout::bhsd);
  const HostTensors padded(p, spec, pool);
  for_elements(padded.inputs().k, p.lengths->keys(), [](float value, bool padding) {
    EXPECT_FALSE(std::isnan(value));
    EXPECT_EQ(value == 0, padding);
  });
  for_elements(padded.inputs().v, p.lengths->keys(),
               [](float value, bool padding) { EXPECT_EQ(std::isnan(value), padding); });

  Problem paged = p;
  paged.page_size = 4;
  const HostTensors tensors(paged, spec, pool);
  const Inputs in = tensors.inputs();
  const auto count = [&](const ConstTensorView& t, auto counts) {
    int64_t found = 0;
    const int64_t elements = paged.key_elements();
    for (int64_t i = 0; i < elements; ++i) found += counts(load_element(t.data, t.dtype, i));
    return found;
  };
  const int64_t in_no_request = paged.key_elements() - 8 * paged.kv_heads * paged.kv_tokens();
  ASSERT_GT(in_no_request, 0);
  EXPECT_EQ(count(in.k, [](float value) { return value == 0; }), in_no_request);
  EXPECT_EQ(count(in.v, [](float value) { return std::isnan(value); }), in_no_request);
}

// As the two dense layouts hold the same values, so does the ragged one.
TEST(Padding, TakesNoValuesFromTheRequests) {
  ThreadPool pool(2);
  const auto values = [&](Layout layout, Distribution distribution) {
    const Problem p = of_requests(layout);
    HostTensors tensors(p, {.distribution = distribution}, pool);
    std::vector<float> found;
    const auto keep = [&](float value, bool padding) {
      if (!padding) found.push_back(value);
    };
    for_elements(tensors.inputs().q, p.lengths->queries(), keep);
    for_elements(tensors.inputs().k, p.lengths->keys(), keep);
    for_elements(tensors.inputs().v, p.lengths->keys(), keep);
    return found;
  };
  for (const Distribution distribution :
       {Distribution::normal, Distribution::outliers, Distribution::equal_scores}) {
    const std::vector<float> ragged = values(Layout::ragged, distribution);
    EXPECT_EQ(ragged.size(), 8u * (4 * 9 + 2 * 2 * 13));
    EXPECT_EQ(values(Layout::bshd, distribution), ragged);
    EXPECT_EQ(values(Layout::bhsd, distribution), ragged);
  }
}

class PaddedOutputs : public testing::TestWithParam<Placement> {
 protected:
  // Writes 1 to each request's own rows, and `behind` to the rows behind them.
  void write(const TensorView& t, const RequestRows& rows, float behind) {
    for (int64_t b = 0; b < t.batch; ++b) {
      for (int64_t h = 0; h < t.heads; ++h) {
        for (int64_t row = 0; row < t.rows(b); ++row) {
          for (int64_t c = 0; c < t.head_dim; ++c) {
            store_element(t.data, t.dtype, t.offset(b, h, row) + c,
                          row < rows.count(b) ? 1 : behind);
          }
        }
      }
    }
  }
  std::unique_ptr<Device> device_ = make_host_device(1);
};

TEST_P(PaddedOutputs, NeedNotBeWrittenAndDoNotCount) {
  for (const Layout layout : kLayouts) {
    const Problem p = of_requests(layout, Pass::backward);
    const RequestRows &queries = p.lengths->queries(), &keys = p.lengths->keys();
    DeviceOutputs first(*device_, p, GetParam()), second(*device_, p, GetParam());
    EXPECT_EQ(first.unwritten_elements(), 8 * (4 * 9 + 2 * 2 * 13));
    for (const auto& [outputs, behind] : {std::pair{&first, NAN}, {&second, 7.0f}}) {
      write(outputs->view().dq, queries, behind);
      write(outputs->view().dk, keys, behind);
      write(outputs->view().dv, keys, behind);
      EXPECT_EQ(outputs->unwritten_elements(), 0);
      EXPECT_EQ(outputs->damage(), "");
    }
    EXPECT_TRUE(first.to_host() == second.to_host());
  }
}

TEST_P(PaddedOutputs, OfTheForwardPassToo) {
  for (const Layout layout : kLayouts) {
    const Problem p = of_requests(layout);
    const RequestRows& queries = p.lengths->queries();
    DeviceOutputs outputs(*device_, p, GetParam());
    write(outputs.view().o, queries, 7);
    EXPECT_EQ(outputs.unwritten_elements(), 4 * 9);
    write(logsumexp_view<void>(outputs.view().logsumexp, p), queries, 7);
    EXPECT_EQ(outputs.unwritten_elements(), 0);
    HostOutputs host = outputs.to_host();
    for_elements(host.view().o, queries, [](float value, bool padding) {
      EXPECT_TRUE(padding ? std::isnan(value) : value == 1);
    });
  }
}

// Tensors without an element are placed, hashed and copied like others.
TEST_P(PaddedOutputs, MayHaveNoKeysAtAll) {
  Problem p{.pass = Pass::backward, .layout = Layout::ragged};
  p.set_lengths(std::make_shared<const Lengths>(std::vector<RequestLengths>{{3, 0}, {1, 0}}));
  ThreadPool pool(1);
  HostTensors host(p, {}, pool);
  DeviceInputs inputs(*device_, p, GetParam(), host.inputs());
  const uint64_t hash = inputs.hash();
  inputs.negate();
  EXPECT_NE(inputs.hash(), hash);  // dO
  DeviceOutputs outputs(*device_, p, GetParam());
  EXPECT_EQ(outputs.unwritten_elements(), 4 * 64);
  EXPECT_EQ(outputs.damage(), "");
  EXPECT_EQ(outputs.to_host().view().dk.elements(), 0);
}

INSTANTIATE_TEST_SUITE_P(, PaddedOutputs, testing::ValuesIn(kPlacements),
                         [](const auto& instance) { return std::string(name(instance.param)); });

}  // namespace
}  // namespace flashbench
