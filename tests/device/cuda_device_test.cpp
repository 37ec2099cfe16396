// The GPU as a device; skipped without a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "device/cuda.h"
#include "device/device.h"

namespace flashbench {
namespace {

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_cuda()) GTEST_SKIP() << *why;
    device_ = make_cuda_device(0);
  }

  Buffer filled(const std::vector<uint16_t>& values) {
    Buffer buffer = device_->allocate(values.size() * 2, MemoryUse::workspace);
    device_->copy_to_device(buffer.data(), values.data(), buffer.bytes());
    return buffer;
  }
  std::vector<uint16_t> read(const Buffer& buffer) {
    std::vector<uint16_t> values(buffer.bytes() / 2);
    device_->copy_to_host(values.data(), buffer.data(), buffer.bytes());
    return values;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(CudaDeviceTest, MemoryStartsAsPoison) {
  const Buffer buffer = device_->allocate(1002, MemoryUse::output);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 256, 0u);
  EXPECT_EQ(device_->poisoned_elements(buffer.data(), 501, 2), 501);
  EXPECT_EQ(device_->poisoned_elements(buffer.data(), 250, 4), 250);
  EXPECT_EQ(device_->used().output, 1002);
}

TEST_F(CudaDeviceTest, CountsWhatIsPoisonStill) {
  const Buffer buffer = filled({0xffff, 0, 0x7fff, 0xffff, 0xff00});
  EXPECT_EQ(device_->poisoned_elements(buffer.data(), 5, 2), 2);
}

TEST_F(CudaDeviceTest, FlipsSignsOnly) {
  const Buffer buffer = filled({0x0001, 0x8001, 0x3c00});
  device_->flip_signs(buffer.data(), 3, 2);
  EXPECT_EQ(read(buffer), (std::vector<uint16_t>{0x8001, 0x0001, 0xbc00}));
}

// The hash depends on every byte and its position.
TEST_F(CudaDeviceTest, HashesEveryByte) {
  std::vector<uint16_t> values(1001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i * 7);
  const Buffer buffer = filled(values);
  const uint64_t hash = device_->hash(buffer.data(), 2001, 1);
  EXPECT_EQ(device_->hash(buffer.data(), 2001, 1), hash);
  EXPECT_NE(device_->hash(buffer.data(), 2001, 2), hash);
  for (const size_t changed : {size_t{0}, size_t{500}, size_t{1000}}) {
    std::vector<uint16_t> other = values;
    other[changed] ^= 1;
    EXPECT_NE(device_->hash(filled(other).data(), 2001, 1), hash) << changed;
  }
  std::swap(values[8], values[800]);
  EXPECT_NE(device_->hash(filled(values).data(), 2001, 1), hash);
}

TEST_F(CudaDeviceTest, TimesTheWorkAndNotTheLaunch) {
  const size_t bytes = size_t{1} << 30;
  const Buffer buffer = device_->allocate(bytes, MemoryUse::workspace);
  const double once = device_->time([&] { device_->poison(buffer.data(), bytes); });
  const double thrice = device_->time([&] {
    for (int i = 0; i < 3; ++i) device_->poison(buffer.data(), bytes);
  });
  EXPECT_GT(once, 1e-5);  // nothing writes 100 TB/s
  EXPECT_GT(thrice, 2 * once);
}

// The time between events is meaningless for a launch that waits for the device.
TEST_F(CudaDeviceTest, ALaunchThatWaitsIsAnError) {
  EXPECT_THROW(device_->time([&] { device_->synchronize(); }), std::runtime_error);
  EXPECT_GT(device_->time([&] { device_->evict_caches(); }), 0);  // the device still works
}

TEST_F(CudaDeviceTest, SeesWorkOnAnotherStream) {
  const size_t bytes = size_t{1} << 30;
  const Buffer buffer = device_->allocate(bytes, MemoryUse::workspace);
  const std::unique_ptr<Device> other = make_cuda_device(0);  // which has a stream of its own
  const double behind = device_->seconds_behind([&] { other->poison(buffer.data(), bytes); });
  EXPECT_GT(behind, 1e-4);  // nothing writes 10 TB/s
  EXPECT_LT(device_->seconds_behind([&] { device_->poison(buffer.data(), bytes); }), behind / 2);
}

TEST_F(CudaDeviceTest, ReplaysSeveralKernelsAsAGraph) {
  const Buffer buffer = filled({1, 2, 3});
  const auto flip = [&] { device_->flip_signs(buffer.data(), 3, 2); };
  EXPECT_EQ(device_->replayable(flip).graph_nodes, 0);
  const Replay replay = device_->replayable([&] {
    flip();
    flip();
    flip();
  });
  EXPECT_EQ(replay.graph_nodes, 3);
  EXPECT_GT(replay.host_seconds.value(), 0);
  const std::vector<uint16_t> before = read(buffer);
  replay.launch();
  device_->synchronize();
  EXPECT_EQ(read(buffer)[0], before[0] ^ 0x8000);
}

TEST_F(CudaDeviceTest, MoreMemoryThanThereIsThrowsAndDoesNoHarm) {
  EXPECT_THROW(device_->allocate(size_t{1} << 45, MemoryUse::workspace), OutOfMemory);
  EXPECT_EQ(device_->used().total(), 0);
  EXPECT_GT(device_->time([&] { device_->evict_caches(); }), 0);
}

TEST_F(CudaDeviceTest, GrowthIsWhatTheDriverGave) {
  device_->watch_growth();
  const Buffer buffer = device_->allocate(size_t{256} << 20, MemoryUse::workspace);
  EXPECT_GE(device_->growth(), int64_t{256} << 20);
}

TEST(CudaDevice, NoSuchGpuIsSaid) {
  EXPECT_THROW(make_cuda_device(1000), NoDevice);
}

}  // namespace
}  // namespace flashbench
