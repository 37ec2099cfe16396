// A device whose memory and clock belong to another program, so that the program's providers run
// where their tensors are. Addresses are the program's; in this process they are only numbers.
// Everything else (threads, the oracle's stream, clocks and power) is the same device, opened by
// this process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/figures.h"
#include "program/process.h"
#include "program/staging.h"

namespace flashbench {

class ProgramDevice final : public Device {
 public:
  using Json = ProgramProcess::Json;

  // A provider that the program offers on this device.
  struct Offer {
    std::string name, description;
    bool gives_logsumexp = true;
    std::vector<std::string> axes;  // optional ones that it knows
  };

  // Starts the program and tells it the providers wanted; none: all but those that are on request
  // only. Throws BadInput.
  ProgramDevice(std::unique_ptr<Device> beside, const std::string& path,
                const std::vector<std::string>& providers);

  const std::string& path() const { return path_; }
  const std::vector<Offer>& offers() const { return offers_; }
  Device& beside() { return *beside_; }

  Json ask(const Json& request) { return process_.ask(request); }

  // The same, for an integer or a text that the answer must have.
  template <typename T>
  T ask_for(const char* key, const Json& request) {
    const Json answer = ask(request);
    return AnsweredFigures(answer, request.at("do"), path_).required<T>(key);
  }

  void give_back(const Json& request) noexcept { process_.give_back(request); }

  // Runs a session of the program and returns its answer. Inside time(), the program's clock times
  // it. The memory that the program reports goes to the device's account.
  Json run(int session, const Json& outputs);

  const DeviceInfo& info() const override { return beside_->info(); }
  Stream stream() override { return beside_->stream(); }
  void synchronize() override {}  // the program answers when its work is done

  void copy_to_device(void* to, const void* from, size_t bytes) override;
  void copy_to_host(void* to, const void* from, size_t bytes) override;
  void poison(void* data, size_t bytes) override;

  double time(const std::function<void()>& launch) override;
  double seconds_behind(const std::function<void()>& launch) override;
  Replay replayable(const std::function<void()>& launch) override;
  std::vector<std::pair<std::string, std::string>> facts() const override;
  std::optional<DeviceState> state() override { return beside_->state(); }
  std::optional<double> ran_seconds() override;
  std::optional<double> waited_seconds() override;
  void evict_caches() override;
  int64_t eviction_bytes() const override { return beside_->eviction_bytes(); }
  bool counts_memory() const override { return info().kind == DeviceKind::cuda; }
  bool takes_launches() const override { return false; }

  uint64_t hash(const void* data, size_t bytes, uint64_t seed) override;
  int64_t poisoned_elements(const void* data, int64_t elements, size_t element_bytes) override;
  void flip_signs(void* data, int64_t elements, size_t element_bytes) override;

  void watch_growth() override { beside_->watch_growth(); }
  int64_t growth() override { return beside_->growth(); }

 protected:
  void* raw_allocate(size_t bytes) override;
  void raw_free(void* data) override;

 private:
  Json file() const;  // the staging memory, as the program opens it

  std::unique_ptr<Device> beside_;
  std::string path_;
  ProgramProcess process_;
  Staging staging_;
  std::vector<Offer> offers_;
  std::vector<std::pair<std::string, std::string>> facts_;
  bool timing_ = false;
  std::optional<double> seconds_, host_seconds_, seconds_behind_;  // of the last run
};

}  // namespace flashbench
