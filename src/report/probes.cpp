#include "report/probes.h"

#include <cmath>

namespace flashbench {

namespace {

nlohmann::ordered_json accumulator_json(const DeviceInfo& device, const AddProducts& wgmma) {
  if (const auto why = why_no_wgmma(device)) return *why;
  const AccumulatorBits bits = accumulator_bits(wgmma);
  return {{"accumulator", bits.accumulator()},
          {"bits_of_sum", bits.of_sum},
          {"bits_beside_sum", bits.beside_sum},
          {"bits_beside_product", {bits.least_beside_product, bits.most_beside_product}}};
}

}  // namespace

nlohmann::ordered_json probes_json(const DeviceInfo& device, const AddProducts& wgmma,
                                   const std::vector<Ceiling>& ceilings) {
  nlohmann::ordered_json json{{"e4m3_products", accumulator_json(device, wgmma)}};
  for (const Ceiling& ceiling : ceilings) {
    if (ceiling.name != "exp2" && ceiling.name != "cvt_e4m3") continue;
    if (const auto rate = ceiling.rate_per_clock(device.threads)) {
      json[ceiling.name + "_values_per_clock"] = std::round(*rate * 10) / 10;
    }
  }
  return json;
}

}  // namespace flashbench
