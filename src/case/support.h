// Describes what a provider can run on a device, and what it writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention/tensors.h"
#include "device/device.h"
#include "plan/axis.h"
#include "providers/provider.h"

namespace flashbench {

// A sentence that says why a provider does not run a case here; empty if it does. Optional axes
// that the case mentions and the provider does not know come before the provider's own reasons.
std::optional<std::string> why_unsupported(const Provider&, const Case&, const DeviceInfo&,
                                           const std::vector<Axis>& table = axes());

// How the provider stores O of these inputs. The factor of e4m3 is the largest of V's: O is a mean
// of rows of V, so that none of its elements is beyond the bytes' range.
OutputFormat output_format(const Provider&, const Problem&, const Inputs& host);

// Returns its name and description, then the dtypes of each pass, then the reasons why others are
// missing, one per line.
std::string support_text(const Provider&, const DeviceInfo&);

}  // namespace flashbench
