#include <fmt/format.h>

#include <charconv>

#include "attention/error.h"
#include "device/cuda.h"
#include "device/device.h"

namespace flashbench {

namespace {

int cuda_index(std::string_view selector) {
  if (selector == "cuda") return 0;
  int index = -1;
  const std::string_view digits = selector.substr(selector.find(':') + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (!selector.starts_with("cuda:") || error != std::errc() ||
      end != digits.data() + digits.size() || index < 0) {
    throw BadInput(fmt::format("device: expected auto, cpu, cuda or cuda:N, got \"{}\"", selector));
  }
  return index;
}

}  // namespace

std::unique_ptr<Device> make_device(std::string_view selector, int threads) {
  if (selector == "cpu" || (selector == "auto" && why_no_cuda())) return make_host_device(threads);
  return make_cuda_device(selector == "auto" ? 0 : cuda_index(selector));
}

}  // namespace flashbench
