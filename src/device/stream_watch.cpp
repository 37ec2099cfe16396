#include "device/stream_watch.h"

#include <pthread.h>

#include <chrono>
#include <utility>

namespace flashbench {

namespace {

constexpr std::chrono::milliseconds kInterval{20};

}  // namespace

StreamWatch::StreamWatch(int streams)
    : streams_(static_cast<size_t>(streams)), thread_([this] { watch(); }) {}

StreamWatch::~StreamWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  pass();
}

void StreamWatch::when_done(int number, cudaStream_t stream, std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  Places& places = streams_[static_cast<size_t>(number)];
  std::unique_ptr<CudaEvent> event;
  if (places.unused.empty()) {
    event = std::make_unique<CudaEvent>(CudaEvent::Use::order);
  } else {
    event = std::move(places.unused.back());
    places.unused.pop_back();
  }
  event->record(stream);
  places.ahead.push_back({std::move(event), std::move(call)});
  changed_.notify_all();
}

void StreamWatch::watch() {
  pthread_setname_np(pthread_self(), "stream watch");
  // Else asking after an event would fail, and spoil the graph, while another thread captures one.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (pass()) {
      changed_.wait_for(lock, kInterval, [this] { return stopping_; });
    } else {
      changed_.wait(lock);
    }
  }
}

bool StreamWatch::pass() {
  bool left = false;
  for (Places& places : streams_) {
    while (!places.ahead.empty() && places.ahead.front().event->has_ended()) {
      Place place = std::move(places.ahead.front());
      places.ahead.pop_front();
      place.call();
      places.unused.push_back(std::move(place.event));
    }
    left = left || !places.ahead.empty();
  }
  return left;
}

}  // namespace flashbench
