// What stands in for NCCL: the ranks are threads of this process, the memory is the host's, and
// whatever is sent waits until it is taken. A null pointer is an error, as is a GPU with two ranks.
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5;

struct Message {
  const void* data;
  size_t bytes;
  bool taken = false;
};

struct World {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Message*>> under_way;  // by sender and receiver
  bool aborted = false;
  int communicators = 0;
};

struct Communicator {
  World* world;
  int rank, ranks;
};

struct Operation {
  Communicator* communicator;
  int peer;
  const void* from;  // null: it receives
  void* to;
  size_t bytes;
};

thread_local bool in_group = false;
thread_local std::vector<Operation> group;

size_t bytes_of(size_t count, int type) {
  return type == 7 ? count * sizeof(float) : count;
}

// All sends are offered before the first receive waits.
int finish(const std::vector<Operation>& operations) {
  if (operations.empty()) return kSuccess;
  World& world = *operations.front().communicator->world;
  std::unique_lock lock(world.mutex);
  std::deque<Message> sent;
  for (const Operation& one : operations) {
    if (one.from == nullptr) continue;
    sent.push_back({one.from, one.bytes});
    world.under_way[{one.communicator->rank, one.peer}].push_back(&sent.back());
  }
  world.changed.notify_all();
  for (const Operation& one : operations) {
    if (one.from != nullptr) continue;
    auto& queue = world.under_way[{one.peer, one.communicator->rank}];
    world.changed.wait(lock, [&] { return world.aborted || !queue.empty(); });
    if (world.aborted) return kInvalidUsage;
    Message& message = *queue.front();
    queue.pop_front();
    if (message.bytes == one.bytes) std::memcpy(one.to, message.data, one.bytes);
    message.taken = true;
    world.changed.notify_all();
    if (message.bytes != one.bytes) return kInvalidArgument;
  }
  for (const Message& message : sent) {
    world.changed.wait(lock, [&] { return world.aborted || message.taken; });
  }
  return world.aborted ? kInvalidUsage : kSuccess;
}

int leave(void* communicator, bool abort) {
  auto* const own = static_cast<Communicator*>(communicator);
  World* const world = own->world;
  bool last = false;
  {
    const std::lock_guard lock(world->mutex);
    world->aborted = world->aborted || abort;
    last = --world->communicators == 0;
    world->changed.notify_all();
  }
  if (last) delete world;
  delete own;
  return kSuccess;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  *version = FAKE_NCCL_VERSION;
  return kSuccess;
}
const char* ncclGetErrorString(int result) {
  return result == kInvalidArgument ? "invalid argument" : "invalid usage";
}
const char* ncclGetLastError(void*) {
  return "the fake says no";
}

int ncclCommInitAll(void** communicators, int count, const int* gpus) {
  if (static_cast<int>(std::set<int>(gpus, gpus + count).size()) < count) return kInvalidUsage;
  auto* const world = new World;
  world->communicators = count;
  for (int rank = 0; rank < count; ++rank)
    communicators[rank] = new Communicator{world, rank, count};
  return kSuccess;
}
int ncclCommDestroy(void* communicator) {
  return leave(communicator, false);
}
int ncclCommAbort(void* communicator) {
  return leave(communicator, true);
}

int ncclGroupStart() {
  in_group = true;
  return kSuccess;
}
int ncclGroupEnd() {
  in_group = false;
  const std::vector<Operation> operations = std::exchange(group, {});
  return finish(operations);
}
int ncclSend(const void* from, size_t count, int type, int peer, void* communicator, void*) {
  if (!in_group || from == nullptr) return kInvalidArgument;
  group.push_back(
      {static_cast<Communicator*>(communicator), peer, from, nullptr, bytes_of(count, type)});
  return kSuccess;
}
int ncclRecv(void* to, size_t count, int type, int peer, void* communicator, void*) {
  if (!in_group || to == nullptr) return kInvalidArgument;
  group.push_back(
      {static_cast<Communicator*>(communicator), peer, nullptr, to, bytes_of(count, type)});
  return kSuccess;
}

int ncclAllGather(const void* from, void* to, size_t count, int type, void* communicator, void*) {
  auto* const own = static_cast<Communicator*>(communicator);
  const size_t bytes = bytes_of(count, type);
  std::vector<Operation> operations;
  for (int peer = 0; peer < own->ranks; ++peer) {
    operations.push_back({own, peer, from, nullptr, bytes});
    operations.push_back({own, peer, nullptr,
                          static_cast<std::byte*>(to) + static_cast<size_t>(peer) * bytes, bytes});
  }
  return finish(operations);
}
int ncclReduceScatter(const void* from, void* to, size_t count, int type, int operation,
                      void* communicator, void*) {
  if (type != 7 || operation != 0) return kInvalidArgument;
  auto* const own = static_cast<Communicator*>(communicator);
  const auto ranks = static_cast<size_t>(own->ranks);
  std::vector<float> parts(ranks * count);
  std::vector<Operation> operations;
  for (int peer = 0; peer < own->ranks; ++peer) {
    const size_t at = static_cast<size_t>(peer) * count;
    operations.push_back(
        {own, peer, static_cast<const float*>(from) + at, nullptr, count * sizeof(float)});
    operations.push_back({own, peer, nullptr, parts.data() + at, count * sizeof(float)});
  }
  const int result = finish(operations);
  for (size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (size_t rank = 0; rank < ranks; ++rank) sum += parts[rank * count + i];
    static_cast<float*>(to)[i] = sum;
  }
  return result;
}

}  // extern "C"
