#include "device/gpu_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "attention/error.h"
#include "attention/problem.h"

namespace flashbench {

namespace {

constexpr std::string_view kPrefix = "cuda:";

// A number of at most three digits, and nothing else.
bool read_gpu(std::string_view digits, int& gpu) {
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, gpu);
  return error == std::errc() && stop == end && gpu >= 0 && gpu < 1000;
}

}  // namespace

std::vector<int> gpu_list(std::string_view selector) {
  if (selector == "cuda") return {0};
  const auto refuse = [&](std::string_view why) {
    return BadInput(fmt::format(
        "device: expected auto, cpu, cuda, cuda:N or cuda:N,N,... for several GPUs, got \"{}\"{}",
        selector, why));
  };
  if (!selector.starts_with(kPrefix)) throw refuse("");
  std::vector<int> gpus;
  std::string_view rest = selector.substr(kPrefix.size());
  while (true) {
    const size_t comma = rest.find(',');
    int gpu = -1;
    if (rest.substr(0, comma).empty()) throw refuse(": a number is missing");
    if (!read_gpu(rest.substr(0, comma), gpu)) throw refuse("");
    gpus.push_back(gpu);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (std::ssize(gpus) > kMaxGpus)
    throw refuse(fmt::format(": at most {} share a problem", kMaxGpus));
  return gpus;
}

std::vector<int> different(const std::vector<int>& gpus) {
  std::vector<int> once;
  for (const int gpu : gpus) {
    if (std::ranges::find(once, gpu) == once.end()) once.push_back(gpu);
  }
  return once;
}

std::string ranks_text(const std::vector<int>& gpus) {
  const size_t count = different(gpus).size();
  return fmt::format("{} on {} GPU{}", gpus.size(), count, count == 1 ? "" : "s");
}

}  // namespace flashbench
