#include "device/cuda_kernels.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

#include "device/cuda_call.h"
#include "device/cuda_driver.h"

namespace flashbench {

namespace {

// Queries the driver, because the runtime knows only the kernels that were linked with it.
class Kernel {
 public:
  explicit Kernel(CUgraphNode node) {
    check(driver_.graph_kernel_params(node, &params_), "cuGraphKernelNodeGetParams");
    function_ = params_.func;
    if (function_ == nullptr) {
      check(driver_.kernel_function(&function_, params_.kern), "cuKernelGetFunction");
    }
  }

  KernelFacts facts() const {
    const char* name = nullptr;
    check(driver_.function_name(&name, function_), "cuFuncGetName");
    KernelFacts facts;
    facts.name = kernel_name(name);
    facts.blocks = int64_t{params_.gridDimX} * params_.gridDimY * params_.gridDimZ;
    facts.threads = static_cast<int>(params_.blockDimX * params_.blockDimY * params_.blockDimZ);
    facts.registers = attribute(CU_FUNC_ATTRIBUTE_NUM_REGS);
    facts.static_shared_bytes = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    facts.dynamic_shared_bytes = static_cast<int>(params_.sharedMemBytes);
    facts.local_bytes = attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    check(driver_.occupancy(&facts.blocks_per_multiprocessor, function_, facts.threads,
                            params_.sharedMemBytes),
          "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    return facts;
  }

 private:
  static void check(CUresult result, const char* call) {
    if (result == CUDA_SUCCESS) return;
    throw CudaError(std::string(call) + ": CUresult " + std::to_string(result));
  }

  int attribute(CUfunction_attribute attribute) const {
    int value = 0;
    check(driver_.function_attribute(&value, attribute, function_), "cuFuncGetAttribute");
    return value;
  }

  const CudaDriver& driver_ = cuda_driver();
  CUDA_KERNEL_NODE_PARAMS params_{};
  CUfunction function_ = nullptr;
};

}  // namespace

std::vector<KernelFacts> kernel_facts(cudaGraph_t graph) {
  size_t count = 0;
  FLASHBENCH_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  FLASHBENCH_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));

  std::vector<KernelFacts> facts;
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    FLASHBENCH_CUDA(cudaGraphNodeGetType(node, &type));
    if (type == cudaGraphNodeTypeKernel) facts.push_back(Kernel(node).facts());
  }
  return facts;
}

std::string kernel_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? demangled.get() : mangled;
  // The parameters begin at the last parenthesis outside all template arguments.
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0 && name.compare(i, 11, "(anonymous ") != 0) {
      name.resize(i);
      break;
    }
  }
  constexpr std::string_view kVoid = "void ";
  return name.starts_with(kVoid) ? name.substr(kVoid.size()) : name;
}

}  // namespace flashbench
