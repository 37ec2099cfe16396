// The parts of a run on inputs that it rounds first (Problem::quantize).
#pragma once

#include "attention/enum_names.h"

namespace flashbench {

enum class RunPart { whole, rounding, attention };
template <>
inline constexpr auto kNames<RunPart> = names_of<RunPart>({{RunPart::whole, "whole"},
                                                           {RunPart::rounding, "rounding"},
                                                           {RunPart::attention, "attention"}});

}  // namespace flashbench
