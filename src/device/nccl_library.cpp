#include "device/nccl_library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>

#include "attention/error.h"

namespace flashbench {

namespace {

constexpr LibraryName kNccl{"NCCL 2", "libnccl.so.2", "nccl", "FLASHBENCH_NCCL", "--nccl"};
constexpr int kLeastNccl = 21300;  // has ncclGetLastError

// Decodes NCCL's version number: 22809 is 2.28.9; up to 2.8 it had a digit less, 2708 is 2.7.8.
std::string nccl_version_text(int number) {
  const int digits = number >= 10000 ? 10000 : 1000;
  return fmt::format("{}.{}.{}", number / digits, number % digits / 100, number % 100);
}

std::string nccl_version(NcclLibrary& library, SharedLibrary& file) {
  file.find(library.get_version, "ncclGetVersion");
  int version = 0;
  if (library.get_version == nullptr) throw std::runtime_error(file.error());
  if (library.get_version(&version) != NcclLibrary::kSuccess || version < kLeastNccl) {
    throw std::runtime_error(fmt::format("it is NCCL {}; {} or later is needed",
                                         nccl_version_text(version),
                                         nccl_version_text(kLeastNccl)));
  }
  file.find(library.error_string, "ncclGetErrorString");
  file.find(library.last_error, "ncclGetLastError");
  file.find(library.comm_init_all, "ncclCommInitAll");
  file.find(library.comm_destroy, "ncclCommDestroy");
  file.find(library.comm_abort, "ncclCommAbort");
  file.find(library.group_start, "ncclGroupStart");
  file.find(library.group_end, "ncclGroupEnd");
  file.find(library.send, "ncclSend");
  file.find(library.receive, "ncclRecv");
  file.find(library.all_gather, "ncclAllGather");
  file.find(library.reduce_scatter, "ncclReduceScatter");
  if (!file.error().empty()) throw std::runtime_error(file.error());
  return nccl_version_text(version);
}

}  // namespace

LibraryPlaces nccl_places() {
  return library_places(kNccl);
}

std::vector<std::string> nccl_candidates(const LibraryPlaces& places) {
  return library_candidates(kNccl, places);
}

NcclLibrary open_nccl(const std::vector<std::string>& candidates) {
  // Always, whatever the user has set: a multicast object that a killed process leaves behind can
  // take all GPUs of the host out of service. NCCL reads this once, at its first communicator.
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  NcclLibrary library;
  static_cast<FoundLibrary&>(library) = open_library(
      kNccl, candidates, [&](SharedLibrary& file) { return nccl_version(library, file); });
  return library;
}

const NcclLibrary& nccl_library() {
  static const NcclLibrary library = [] {
    const LibraryPlaces places = nccl_places();
    NcclLibrary found = open_nccl(nccl_candidates(places));
    if (found.handle == nullptr) found.error += other_place(kNccl, places);
    return found;
  }();
  return library;
}

void use_nccl(const std::string& path) {
  give_library(kNccl, path);
  if (!nccl_library().error.empty()) throw BadInput("--nccl: " + nccl_library().error);
}

}  // namespace flashbench
