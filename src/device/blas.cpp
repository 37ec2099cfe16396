#include "device/blas.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <filesystem>

#include "device/device.h"
#include "host/shared_library.h"

namespace flashbench::blas {

namespace {

constexpr const char* kName = "libopenblas.so.0";
constexpr const char* kVariable = "FLASHBENCH_OPENBLAS";

// The numbers of the standard C interface to BLAS.
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;

// openblas_get_parallel() of a serial build, whose calls must not overlap: Debian's
// libopenblas0-serial returns wrong products if they do.
constexpr int kSerialBuild = 0;

// Address space that OpenBLAS maps for each concurrent call on x86-64 and ARM.
constexpr size_t kBufferBytes = size_t{128} << 20;

template <typename T>
using Gemm = void (*)(int order, int op_a, int op_b, int m, int n, int k, T alpha, const T* a,
                      int a_stride, const T* b, int b_stride, T beta, T* c, int c_stride);

// Where to find OpenBLAS: only where the user says, if they do; else in flashbench's package, else
// the system's.
std::vector<std::string> places() {
  const char* given = std::getenv(kVariable);
  if (given != nullptr && *given != '\0') return {std::filesystem::absolute(given)};
  std::error_code unimportant;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", unimportant);
  return {program.parent_path().parent_path() / "lib/flashbench" / kName, kName};
}

// OpenBLAS reads these variables while it is loaded.
void set_environment() {
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  if (const std::string core = core_for_this_processor(); !core.empty()) {
    setenv("OPENBLAS_CORETYPE", core.c_str(), 0);  // 0: keeps the user's choice, if any
  }
}

struct Library {
  Gemm<float> sgemm = nullptr;
  Gemm<double> dgemm = nullptr;
  char* (*config)() = nullptr;
  char* (*corename)() = nullptr;
  int (*parallel)() = nullptr;
  std::string error;

  Library() {
    set_environment();
    SharedLibrary file(places());
    file.find(sgemm, "cblas_sgemm");
    file.find(dgemm, "cblas_dgemm");
    file.find(config, "openblas_get_config");
    file.find(corename, "openblas_get_corename");
    file.find(parallel, "openblas_get_parallel");
    error = file.error();
    if (error.empty() && parallel() == kSerialBuild) {
      error = fmt::format("{} is a serial build, which is not thread-safe", config());
    }
  }
};

const Library& library() {
  static const Library instance;
  return instance;
}

const Library& required_library() {
  if (const auto why = why_none()) throw NoDevice(*why);
  return library();
}

int code(Transpose op) {
  return op == Transpose::yes ? kTranspose : kNoTranspose;
}

template <typename T>
void call(Gemm<T> function, Transpose op_a, Transpose op_b, int64_t m, int64_t n, int64_t k,
          T alpha, Operand<const T> a, Operand<const T> b, T beta, Operand<T> c) {
  const auto size = [](int64_t value) { return static_cast<int>(value); };
  function(kRowMajor, code(op_a), code(op_b), size(m), size(n), size(k), alpha, a.data,
           size(a.stride), b.data, size(b.stride), beta, c.data, size(c.stride));
}

}  // namespace

void gemm(Transpose op_a, Transpose op_b, int64_t m, int64_t n, int64_t k, float alpha,
          Operand<const float> a, Operand<const float> b, float beta, Operand<float> c) {
  call(required_library().sgemm, op_a, op_b, m, n, k, alpha, a, b, beta, c);
}

void gemm(Transpose op_a, Transpose op_b, int64_t m, int64_t n, int64_t k, double alpha,
          Operand<const double> a, Operand<const double> b, double beta, Operand<double> c) {
  call(required_library().dgemm, op_a, op_b, m, n, k, alpha, a, b, beta, c);
}

std::optional<std::string> why_none() {
  if (library().error.empty()) return std::nullopt;
  return fmt::format(
      "OpenBLAS cannot be used: {}; install it (Debian and Ubuntu: libopenblas0-pthread; Fedora: "
      "openblas-threads; conda: openblas), or set {} to its path",
      library().error, kVariable);
}

std::optional<std::string> why_no_room(int threads) {
  const size_t bytes = kBufferBytes * static_cast<size_t>(threads);
  void* room = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room != MAP_FAILED) {
    munmap(room, bytes);
    return std::nullopt;
  }
  return fmt::format(
      "OpenBLAS needs {} MiB of address space for {} threads, and the limit (ulimit -v) leaves "
      "less",
      bytes >> 20, threads);
}

std::string configuration() {
  return why_none() ? "" : library().config();
}

std::string core() {
  return why_none() ? "" : library().corename();
}

std::string core_for_this_processor() {
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (avx512) return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return "";
}

}  // namespace flashbench::blas
