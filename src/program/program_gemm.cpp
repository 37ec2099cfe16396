#include <fmt/format.h>

#include "program/program.h"

namespace flashbench {

namespace {

class ProgramGemm final : public GemmCeiling {
 public:
  ProgramGemm(ProgramDevice& device, Dtype dtype)
      : device_(device),
        dtype_(dtype),
        size_(device.info().kind == DeviceKind::cpu ? kProgramHostGemmSize : kProgramCudaGemmSize),
        session_(device.ask_for<int>(
            "session", {{"do", "prepare_gemm"}, {"dtype", name(dtype)}, {"size", size_}})) {}

  void run() override { device_.run(session_, ProgramDevice::Json::object()); }

  double flops() const override {
    const auto size = static_cast<double>(size_);
    return 2 * size * size * size;
  }

  std::string description() const override {
    return fmt::format("{0} {1}x{1}x{1} (A B^T), {2}", name(dtype_), size_, device_.path());
  }

 private:
  ProgramDevice& device_;
  Dtype dtype_;
  int64_t size_;
  int session_;
};

}  // namespace

std::unique_ptr<GemmCeiling> make_program_gemm(ProgramDevice& device, Dtype dtype) {
  return std::make_unique<ProgramGemm>(device, dtype);
}

}  // namespace flashbench
