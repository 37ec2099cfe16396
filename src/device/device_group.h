// Several devices of one host that work on one problem: GPUs, or groups of a CPU's threads that
// stand for them, with memcpy for the links between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "device/device.h"

namespace flashbench {

class NcclRanks;

// `height` rows of `width` bytes, `pitch` bytes apart on either side.
struct RowCopy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t width = 0, height = 1, to_pitch = 0, from_pitch = 0;

  int64_t bytes() const { return static_cast<int64_t>(width * height); }
};

// Thrown in the other ranks' work when that of one has failed, so that none waits for it.
class RankFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A rank is one of the devices, from 0. What takes a rank is called from within run() by the thread
// of that rank alone, except info().
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual int ranks() const = 0;
  virtual const DeviceInfo& info(int rank) const = 0;
  virtual Stream stream(int rank) = 0;

  // Memory of the rank, as workspace. Called outside of run().
  virtual Buffer allocate(int rank, size_t bytes) = 0;
  // Memory that every rank reads and writes: bytes that are of a rank are in its memory, by whole
  // pages.
  virtual Buffer allocate_for_all(size_t bytes, const std::vector<OwnedBytes>&) {
    return allocate(0, bytes);
  }

  // Calls body(rank) on a thread for each rank, all at once. Returns when all are done, their
  // copies too, and rethrows the exception of the rank that failed first.
  virtual void run(const std::function<void(int rank)>& body) = 0;

  // Copies memory of the rank `from` into memory of `rank` on a copy engine of `rank`, while the
  // rank goes on. It is behind the earlier pulls from others, or behind those from the rank itself.
  // With a mark, not before `from` has set that. Returns the number of this pull.
  virtual int64_t pull(int rank, int from, std::vector<RowCopy> copies, int mark = kNoMark) = 0;
  static constexpr int kNoMark = -1;

  // One pull from several other ranks, at once where there are links for each.
  struct Source {
    int from = 0;
    std::vector<RowCopy> copies;
  };
  virtual int64_t pull_from(int rank, std::vector<Source> sources) {
    int64_t last = 0;
    for (Source& source : sources) last = pull(rank, source.from, std::move(source.copies));
    return last;
  }

  // Calls this, which queues what NCCL does for the rank on the stream of its pulls. What the rank
  // computes from here on does not start before that, and goes on beside it. Every rank does the
  // same. Returns a number, as pull() does. Only groups of make_nccl_group() have NCCL.
  using NcclWork = std::function<void(const NcclRanks&, Stream)>;
  virtual int64_t communicate(int /*rank*/, const NcclWork&) {
    throw std::logic_error("this group has no NCCL");
  }

  // Waits for this pull of the rank, and all before it. Any thread of the rank may call it.
  virtual void wait(int rank, int64_t pull) = 0;

  // Sets a mark, from 0, of this run: others may pull what the rank has written. Any thread of the
  // rank may call it.
  virtual void set_mark(int rank, int mark) = 0;

  // Waits until every rank is here: what one has written before, all may pull afterwards.
  virtual void barrier(int rank) = 0;

  // Calls this, soon, once the rank's work before it has ended, in that order; on a host by the end
  // of run(), on GPUs while the group exists. Any thread of the rank may ask for it, and any thread
  // may call.
  virtual void when_done(int rank, const std::function<void()>& call) = 0;
  // Of the last run, which has ended: each rank's seconds from its own start to its own end.
  virtual std::vector<double> rank_seconds() const = 0;
};

// The devices that share work with this one, which is of them; it must outlive the group. Those of
// a host are groups of its threads, as many in each, at least one. Null for a device that shares
// with fewer.
std::unique_ptr<DeviceGroup> make_group(Device&, int ranks);
std::unique_ptr<DeviceGroup> make_host_group(Device& host, int ranks);

// A group of GPUs with NCCL, whose communicators it makes and destroys; null for other devices.
// Throws std::runtime_error if why_no_nccl() has a reason, or if NCCL reports an error.
std::unique_ptr<DeviceGroup> make_nccl_group(Device&, int ranks);

}  // namespace flashbench
