// The environment in which a result was made.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "device/device.h"

namespace flashbench {

// Program, version, commit, build, command line, start time, FLOP and byte rules.
nlohmann::ordered_json meta_json(const std::vector<std::string>& argv);

// The device, its operating system, and the libraries used on it.
nlohmann::ordered_json device_json(const Device&);

// The device without what differs between machines of one kind (its index there, the exact size of
// the memory): what must be the same for rows of one result.
nlohmann::ordered_json kind_of_device(nlohmann::ordered_json device);

// "2026-11-21T09:30:00Z"
std::string utc_now();

}  // namespace flashbench
