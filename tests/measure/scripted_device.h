// A device whose clock and energy counter read what the test sets, so that nothing depends on real
// time.
#pragma once

#include "device/device.h"

namespace flashbench {

class ScriptedDevice : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  Stream stream() override { return {}; }
  void synchronize() override {}
  void copy_to_device(void*, const void*, size_t) override {}
  void copy_to_host(void*, const void*, size_t) override {}
  void poison(void*, size_t) override {}
  double time(const std::function<void()>& launch) override {
    launch();
    return seconds;
  }
  std::optional<double> energy() override { return joules; }
  std::optional<double> ran_seconds() override { return ran; }
  std::optional<double> waited_seconds() override { return waited; }
  void evict_caches() override { log += "e"; }
  int64_t eviction_bytes() const override { return 0; }

  double seconds = 0.01;
  std::optional<double> joules, ran, waited;
  std::string log;

 protected:
  void* raw_allocate(size_t) override { return nullptr; }
  void raw_free(void*) override {}

 private:
  DeviceInfo info_;
};

}  // namespace flashbench
