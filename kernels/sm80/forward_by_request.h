// sm80's forward kernel by request (kernels/common/requests.h): what forward.cu needs of it.
#pragma once

#include <vector>

#include "kernels/attention.h"

namespace flashbench::kernels::sm80 {

std::vector<BlockSizes> candidates_by_request(const Problem&, const DeviceInfo&);
KernelFacts facts_by_request(const Launch&);
void launch_by_request(const Launch&, const Inputs&, const Outputs&, Stream);

}  // namespace flashbench::kernels::sm80
