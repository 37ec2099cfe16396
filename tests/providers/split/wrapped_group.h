// A group whose members can be replaced one by one.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/device_group.h"

namespace flashbench {

class WrappedGroup : public DeviceGroup {
 public:
  explicit WrappedGroup(std::unique_ptr<DeviceGroup> group) : group_(std::move(group)) {}
  int ranks() const override { return group_->ranks(); }
  const DeviceInfo& info(int rank) const override { return group_->info(rank); }
  Stream stream(int rank) override { return group_->stream(rank); }
  Buffer allocate(int rank, size_t bytes) override { return group_->allocate(rank, bytes); }
  Buffer allocate_for_all(size_t bytes, const std::vector<OwnedBytes>& owned) override {
    return group_->allocate_for_all(bytes, owned);
  }
  void run(const std::function<void(int)>& body) override { group_->run(body); }
  int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark) override {
    return group_->pull(rank, from, std::move(copies), mark);
  }
  void wait(int rank, int64_t pull) override { group_->wait(rank, pull); }
  void set_mark(int rank, int mark) override { group_->set_mark(rank, mark); }
  void barrier(int rank) override { group_->barrier(rank); }
  void when_done(int rank, const std::function<void()>& call) override {
    group_->when_done(rank, call);
  }
  std::vector<double> rank_seconds() const override { return group_->rank_seconds(); }

 private:
  std::unique_ptr<DeviceGroup> group_;
};

}  // namespace flashbench
