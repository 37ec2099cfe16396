#include "device/nccl_ranks.h"

#include <fmt/format.h>

#include <stdexcept>

namespace flashbench {

NcclRanks::NcclRanks(const NcclLibrary& library, const std::vector<int>& gpus)
    : library_(library), communicators_(gpus.size()) {
  const auto count = static_cast<int>(gpus.size());
  const int result = library.comm_init_all(communicators_.data(), count, gpus.data());
  if (result == NcclLibrary::kSuccess) return;
  throw std::runtime_error(fmt::format("{} ranks: ncclCommInitAll: {}: {}", count,
                                       library.error_string(result), library.last_error(nullptr)));
}

NcclRanks::~NcclRanks() {
  for (const auto communicator : communicators_) library_.comm_destroy(communicator);
}

void NcclRanks::exchange(int rank, const std::vector<NcclSend>& sends,
                         const std::vector<NcclReceive>& receives, Stream stream) const {
  const auto comm = communicator(rank);
  constexpr int kType = NcclLibrary::kInt8;
  check(library_.group_start(), rank, "ncclGroupStart");
  for (const NcclSend& send : sends) {
    check(library_.send(send.data, send.bytes, kType, send.to, comm, stream.cuda), rank,
          "ncclSend");
  }
  for (const NcclReceive& receive : receives) {
    check(library_.receive(receive.data, receive.bytes, kType, receive.from, comm, stream.cuda),
          rank, "ncclRecv");
  }
  check(library_.group_end(), rank, "ncclGroupEnd");
}

void NcclRanks::all_gather(int rank, const void* from, void* to, size_t bytes,
                           Stream stream) const {
  check(library_.all_gather(from, to, bytes, NcclLibrary::kInt8, communicator(rank), stream.cuda),
        rank, "ncclAllGather");
}

void NcclRanks::reduce_scatter(int rank, const float* from, float* to, size_t count,
                               Stream stream) const {
  check(library_.reduce_scatter(from, to, count, NcclLibrary::kFloat32, NcclLibrary::kSum,
                                communicator(rank), stream.cuda),
        rank, "ncclReduceScatter");
}

void NcclRanks::abort() {
  for (const auto communicator : communicators_) library_.comm_abort(communicator);
  communicators_.clear();
}

NcclLibrary::Communicator NcclRanks::communicator(int rank) const {
  if (communicators_.empty()) {
    throw std::runtime_error(fmt::format("rank {}: NCCL was aborted after an error", rank));
  }
  return communicators_[static_cast<size_t>(rank)];
}

void NcclRanks::check(int result, int rank, const char* call) const {
  if (result == NcclLibrary::kSuccess) return;
  throw std::runtime_error(fmt::format("rank {}: {}: {}: {}", rank, call,
                                       library_.error_string(result),
                                       library_.last_error(communicator(rank))));
}

std::optional<std::string> why_no_nccl(const DeviceInfo& info, const NcclLibrary& library) {
  if (!library.error.empty()) return library.error;
  if (info.ranks_share_gpus) return "NCCL takes no two ranks on one GPU: name each GPU once";
  return std::nullopt;
}

}  // namespace flashbench
