// What `info` finds out about a GPU's arithmetic beside its ceilings.
#pragma once

#include <nlohmann/json.hpp>

#include <vector>

#include "measure/accumulator_bits.h"
#include "measure/ceilings.h"

namespace flashbench {

// The accumulator of e4m3 products, or a sentence that says why there is none to look at; and the
// rates of instructions per clock and multiprocessor, of those ceilings that are there and whose
// clock is known. `wgmma` is called only if why_no_wgmma() has no reason.
nlohmann::ordered_json probes_json(const DeviceInfo&, const AddProducts& wgmma,
                                   const std::vector<Ceiling>&);

}  // namespace flashbench
