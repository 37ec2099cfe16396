#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "attention/error.h"
#include "device/device.h"
#include "device/device_tensors.h"
#include "inputs/inputs.h"

namespace flashbench {
namespace {

TEST(HostDevice, TracksWhatIsUsedAndItsPeak) {
  const auto device = make_host_device(1);
  EXPECT_EQ(device->used().total(), 0);
  {
    const Buffer input = device->allocate(100, MemoryUse::input);
    Buffer workspace = device->allocate(1000, MemoryUse::workspace);
    EXPECT_EQ(device->used().input, 100);
    EXPECT_EQ(device->used().workspace, 1000);
    workspace = device->allocate(10, MemoryUse::output);
  }
  EXPECT_EQ(device->used().total(), 0);
  EXPECT_EQ(device->peak().total(), 1110);
  device->reset_peak();
  EXPECT_EQ(device->peak().total(), 0);
}

TEST(HostDevice, MemoryIsAlignedAndStartsAsNaN) {
  const auto device = make_host_device(1);
  for (size_t bytes : {size_t{4}, size_t{1000}, size_t{6} << 20}) {
    const Buffer buffer = device->allocate(bytes, MemoryUse::workspace);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_TRUE(std::isnan(buffer.as<float>()[0]));
    EXPECT_TRUE(std::isnan(buffer.as<float>()[bytes / 4 - 1]));
  }
}

TEST(HostDevice, MoreMemoryThanThereIsThrows) {
  const auto device = make_host_device(1);
  EXPECT_THROW(device->allocate(size_t{1} << 50, MemoryUse::workspace), OutOfMemory);
  EXPECT_EQ(device->used().total(), 0);
}

TEST(HostDevice, TimesTheWorkItself) {
  const auto device = make_host_device(1);
  const double seconds =
      device->time([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
  EXPECT_GE(seconds, 0.005);
}

TEST(HostDevice, SelectorsAndNoDevice) {
  EXPECT_EQ(make_device("cpu", 2)->info().threads, 2);
  EXPECT_THROW(make_device("tpu", 1), BadInput);
  EXPECT_THROW(make_device("cuda:x", 1), BadInput);
  EXPECT_THROW(make_device("cuda:-1", 1), BadInput);
}

TEST(DeviceTensors, InputsArriveAndChangesShow) {
  const auto device = make_host_device(2);
  const Problem problem{
      .pass = Pass::backward, .q_heads = 2, .kv_heads = 1, .q_len = 3, .kv_len = 5, .head_dim = 8};
  HostTensors host(problem, {}, *device->stream().threads);
  DeviceInputs inputs(*device, problem, Placement::contiguous, host.inputs());
  const uint64_t hash = inputs.hash();
  EXPECT_EQ(std::memcmp(inputs.view().d_o.data, host.inputs().d_o.data,
                        static_cast<size_t>(problem.query_elements()) * 4),
            0);
  auto* k = static_cast<float*>(const_cast<void*>(inputs.view().k.data));
  k[0] += 1;
  EXPECT_NE(inputs.hash(), hash);
  inputs.refill(host.inputs());
  EXPECT_EQ(inputs.hash(), hash);
}

TEST(DeviceTensors, VAndOHaveTheirOwnHeadDim) {
  const auto device = make_host_device(2);
  Problem p{.q_heads = 2, .q_len = 3, .kv_len = 5, .head_dim = 8, .head_dim_v = 24};
  for (const Pass pass : kPasses) {
    p.pass = pass;
    HostTensors host(p, {}, *device->stream().threads);
    for (const Placement placement : kPlacements) {
      const DeviceInputs inputs(*device, p, placement, host.inputs());
      DeviceOutputs outputs(*device, p, placement);
      for (const Inputs& in : {host.inputs(), inputs.view()}) {
        EXPECT_EQ(in.q.head_dim, 8);
        EXPECT_EQ(in.k.head_dim, 8);
        EXPECT_EQ(in.v.head_dim, 24);
        if (pass == Pass::forward) continue;
        EXPECT_EQ(in.o.head_dim, 24);
        EXPECT_EQ(in.d_o.head_dim, 24);
      }
      HostOutputs on_host = outputs.to_host();
      for (const Outputs& out : {outputs.view(), on_host.view()}) {
        if (pass == Pass::forward) {
          EXPECT_EQ(out.o.elements(), 2 * 3 * 24);
        } else {
          EXPECT_EQ(out.dq.elements(), 2 * 3 * 8);
          EXPECT_EQ(out.dk.elements(), 5 * 8);
          EXPECT_EQ(out.dv.elements(), 5 * 24);
        }
      }
      EXPECT_EQ(outputs.unwritten_elements(),
                pass == Pass::forward ? 2 * 3 * 24 + 2 * 3 : 2 * 3 * 8 + 5 * 8 + 5 * 24);
      EXPECT_EQ(outputs.damage(), "");
    }
  }
}

TEST(DeviceTensors, OInE4m3HasAFactor) {
  const auto device = make_host_device(1);
  const Problem p{.dtype = Dtype::e4m3, .q_heads = 2, .kv_heads = 2, .q_len = 3, .kv_len = 5};
  DeviceOutputs outputs(*device, p, Placement::strided, true, OutputFormat{Dtype::e4m3, 0.25f});
  const TensorView o = outputs.view().o;
  EXPECT_EQ(o.dtype, Dtype::e4m3);
  EXPECT_EQ(o.descales.at(0, 1, 2), 0.25f);
  static_cast<uint8_t*>(o.data)[o.offset(0, 1, 2)] = 0x38;
  HostOutputs host = outputs.to_host();
  const TensorView on_host = host.view().o;
  EXPECT_EQ(static_cast<const uint8_t*>(on_host.data)[on_host.offset(0, 1, 2)], 0x38);
  EXPECT_EQ(on_host.descales.at(0, 1, 2), 0.25f);
  EXPECT_EQ(DeviceOutputs(*device, p, Placement::strided).view().o.dtype, Dtype::bf16);
}

TEST(DeviceTensors, UnwrittenOutputsAreCounted) {
  const auto device = make_host_device(1);
  for (Dtype dtype : kUnscaledDtypes) {
    const Problem problem{
        .dtype = dtype, .q_heads = 2, .kv_heads = 2, .q_len = 3, .kv_len = 5, .head_dim = 8};
    DeviceOutputs outputs(*device, problem, Placement::contiguous);
    EXPECT_EQ(outputs.unwritten_elements(), 2 * 3 * 8 + 2 * 3);
    std::memset(outputs.view().o.data, 0,
                static_cast<size_t>(problem.query_elements() * element_size(dtype)));
    EXPECT_EQ(outputs.unwritten_elements(), 2 * 3);
    const HostOutputs before = outputs.to_host();
    outputs.poison();
    EXPECT_EQ(outputs.unwritten_elements(), 2 * 3 * 8 + 2 * 3);
    EXPECT_FALSE(outputs.to_host() == before);
  }
}

}  // namespace
}  // namespace flashbench
