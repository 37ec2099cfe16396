// NCCL, opened when first needed. Without it the binary still starts, and only what several GPUs do
// by NCCL is absent.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/library_search.h"

namespace flashbench {

// The entry points that the project uses, as nccl.h has them since version 2.13, so that no build
// needs that header: enums are ints, and a stream is a cudaStream_t.
struct NcclLibrary : FoundLibrary {
  using Communicator = void*;  // ncclComm_t
  static constexpr int kSuccess = 0;
  static constexpr int kInt8 = 0, kFloat32 = 7;  // ncclDataType_t
  static constexpr int kSum = 0;                 // ncclRedOp_t

  int (*get_version)(int* version) = nullptr;
  const char* (*error_string)(int result) = nullptr;
  const char* (*last_error)(Communicator) = nullptr;
  int (*comm_init_all)(Communicator*, int count, const int* gpus) = nullptr;
  int (*comm_destroy)(Communicator) = nullptr;
  int (*comm_abort)(Communicator) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void* from, size_t count, int type, int peer, Communicator,
              void* stream) = nullptr;
  int (*receive)(void* to, size_t count, int type, int peer, Communicator, void* stream) = nullptr;
  int (*all_gather)(const void* from, void* to, size_t count, int type, Communicator,
                    void* stream) = nullptr;
  int (*reduce_scatter)(const void* from, void* to, size_t count, int type, int operation,
                        Communicator, void* stream) = nullptr;
};

// The places by FLASHBENCH_NCCL, VIRTUAL_ENV and CONDA_PREFIX.
LibraryPlaces nccl_places();

std::vector<std::string> nccl_candidates(const LibraryPlaces&);

// Opens the first of these that is NCCL 2.13 or later, with its use of NVLink's multicast off.
NcclLibrary open_nccl(const std::vector<std::string>& candidates);

// The library in nccl_places(). Searched for at the first call; stays open.
const NcclLibrary& nccl_library();

// Makes this process, and the processes that it starts, use the NCCL at this path. Call it before
// nccl_library(). Throws BadInput if it cannot be opened.
void use_nccl(const std::string& path);

}  // namespace flashbench
