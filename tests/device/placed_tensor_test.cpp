#include "device/placed_tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "attention/half.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

class PlacedTensorTest : public testing::Test {
 protected:
  // Integers from 1 on, exact in every dtype.
  std::vector<std::byte> some_data(const ConstTensorView& shape) {
    std::vector<std::byte> data(static_cast<size_t>(shape.elements() * element_size(shape.dtype)));
    for (int64_t i = 0; i < shape.elements(); ++i) {
      store_element(data.data(), shape.dtype, i, static_cast<float>(i % 251 + 1));
    }
    return data;
  }

  // Calls body(shape, placement) for every dtype, layout and placement.
  template <typename Body>
  void for_all(const Body& body) {
    for (const Dtype dtype : kUnscaledDtypes) {
      for (const Layout layout : kDenseLayouts) {
        for (const Placement placement : kPlacements) {
          SCOPED_TRACE(std::string(name(dtype)) + " " + std::string(name(layout)) + " " +
                       std::string(name(placement)));
          body(dense_view<const void>(nullptr, dtype, layout, 2, 3, 5, 16), placement);
        }
      }
    }
  }

  std::unique_ptr<Device> device_ = make_host_device(1);
};

TEST_F(PlacedTensorTest, ElementsComeBackAndLieWhereTheViewSays) {
  for_all([&](const ConstTensorView& shape, Placement placement) {
    PlacedTensor tensor(*device_, shape, placement, MemoryUse::input);
    const std::vector<std::byte> data = some_data(shape);
    tensor.write(data.data());
    std::vector<std::byte> back(data.size());
    tensor.read(back.data());
    EXPECT_EQ(back, data);
    const TensorView& view = tensor.view();
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t h = 0; h < 3; ++h) {
        for (int64_t row = 0; row < 5; ++row) {
          ASSERT_EQ(load_element(view.data, view.dtype, view.offset(b, h, row) + 9),
                    load_element(data.data(), view.dtype, shape.offset(b, h, row) + 9));
        }
      }
    }
    EXPECT_EQ(tensor.damaged_guard_bytes(), 0);
  });
}

TEST_F(PlacedTensorTest, PlacementsAreWhatTheyAreCalled) {
  for_all([&](const ConstTensorView& shape, Placement placement) {
    const PlacedTensor tensor(*device_, shape, placement, MemoryUse::input);
    const TensorView& view = tensor.view();
    const auto address = reinterpret_cast<uintptr_t>(view.data);
    const auto element = static_cast<uintptr_t>(element_size(view.dtype));
    EXPECT_EQ(address % 64, placement == Placement::offset ? element : 0u);
    const bool strided = placement == Placement::strided;
    EXPECT_EQ(view.row_stride != shape.row_stride, strided);
    EXPECT_EQ(view.head_stride != shape.head_stride, strided);
    EXPECT_EQ(view.batch_stride != shape.batch_stride, strided);
    for (const int64_t stride : {view.row_stride, view.head_stride, view.batch_stride}) {
      EXPECT_EQ(stride % 8, 0);
    }
  });
}

TEST_F(PlacedTensorTest, AWriteOutsideTheElementsShows) {
  for_all([&](const ConstTensorView& shape, Placement placement) {
    PlacedTensor tensor(*device_, shape, placement, MemoryUse::output);
    tensor.write(some_data(shape).data());
    const TensorView& view = tensor.view();
    auto* first = static_cast<std::byte*>(view.data);
    const auto size = static_cast<int64_t>(element_size(view.dtype));
    const int64_t end = view.offset(1, 2, 4) + view.head_dim;
    std::vector<int64_t> outside{-size, end * size, end * size + 255};
    if (placement == Placement::strided) {
      outside.push_back((view.offset(0, 1, 2) + view.head_dim) * size);  // behind a row
      outside.push_back((view.batch_stride - 1) * size);                 // behind a batch
    }
    for (const int64_t at : outside) {
      const std::byte before = first[at];
      first[at] = std::byte{7};
      EXPECT_EQ(tensor.damaged_guard_bytes(), 1) << at;
      first[at] = before;
    }
    EXPECT_EQ(tensor.damaged_guard_bytes(), 0);
  });
}

TEST_F(PlacedTensorTest, NegatesEveryElementAndNothingElse) {
  for_all([&](const ConstTensorView& shape, Placement placement) {
    PlacedTensor tensor(*device_, shape, placement, MemoryUse::input);
    const std::vector<std::byte> data = some_data(shape);
    tensor.write(data.data());
    const uint64_t hash = tensor.hash(0);
    tensor.negate();
    EXPECT_NE(tensor.hash(0), hash);
    EXPECT_EQ(tensor.damaged_guard_bytes(), 0);
    std::vector<std::byte> back(data.size());
    tensor.read(back.data());
    for (int64_t i = 0; i < shape.elements(); ++i) {
      ASSERT_EQ(load_element(back.data(), shape.dtype, i),
                -load_element(data.data(), shape.dtype, i));
    }
    tensor.negate();
    EXPECT_EQ(tensor.hash(0), hash);
  });
}

TEST_F(PlacedTensorTest, LargerThanAPieceOfACopy) {
  const auto shape = dense_view<const void>(nullptr, Dtype::fp16, Layout::bhsd, 1, 1, 20000, 256);
  PlacedTensor tensor(*device_, shape, Placement::offset, MemoryUse::input);
  std::vector<std::byte> data = some_data(shape), back(data.size());
  tensor.write(data.data());
  const uint64_t hash = tensor.hash(0);
  tensor.negate();
  tensor.read(back.data());
  flip_signs(data, 2);
  EXPECT_EQ(back, data);
  static_cast<std::byte*>(tensor.view().data)[back.size() - 1] ^= std::byte{1};
  EXPECT_NE(tensor.hash(0), hash);
}

TEST_F(PlacedTensorTest, NoTensorIsNothing) {
  PlacedTensor none;
  none.write(nullptr);
  none.negate();
  none.poison();
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.hash(5), 5u);
  EXPECT_EQ(none.damaged_guard_bytes(), 0);
}

TEST_F(PlacedTensorTest, OutputsNameTheTensorThatWasWrittenAround) {
  for (const Pass pass : kPasses) {
    const Problem problem{
        .pass = pass, .q_heads = 2, .kv_heads = 1, .q_len = 3, .kv_len = 5, .head_dim = 8};
    DeviceOutputs outputs(*device_, problem, Placement::contiguous);
    EXPECT_EQ(outputs.damage(), "");
    const Outputs view = outputs.view();
    const auto damage = [&](void* data) {
      static_cast<float*>(data)[-1] = 0;
      const std::string sentence = outputs.damage();
      outputs.poison();
      return sentence;
    };
    if (pass == Pass::forward) {
      EXPECT_EQ(damage(view.o.data), "4 bytes outside the elements of o were written");
      EXPECT_EQ(damage(view.logsumexp), "4 bytes outside the elements of logsumexp were written");
    } else {
      EXPECT_EQ(damage(view.dq.data), "4 bytes outside the elements of dq were written");
      EXPECT_EQ(damage(view.dk.data), "4 bytes outside the elements of dk were written");
      EXPECT_EQ(damage(view.dv.data), "4 bytes outside the elements of dv were written");
    }
    EXPECT_EQ(outputs.damage(), "");
  }
}

}  // namespace
}  // namespace flashbench
