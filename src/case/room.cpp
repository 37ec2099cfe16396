#include "case/room.h"

#include <fmt/format.h>

#include "host/proc.h"

namespace flashbench {

namespace {

// Keep an eighth of the memory free: the system kills the process that takes the last of it.
constexpr int64_t kKeptFree = 8;

double gibibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 30);
}

}  // namespace

int64_t host_bytes_needed(const Problem& p, DeviceKind kind) {
  const int64_t o = p.output_elements() * element_size(p.output_dtype());
  const int64_t keys = p.key_elements() + p.value_elements();
  const int64_t elements = p.query_elements() + keys;
  const int64_t qkv =
      p.query_elements() * element_size(p.dtype) + keys * element_size(p.key_dtype());
  const bool forward = p.pass == Pass::forward;
  const int64_t inputs = forward ? qkv : qkv + 2 * o;
  const int64_t outputs = forward ? o : qkv;
  const int64_t in_fp32 = p.is_quantized() ? elements * element_size(Dtype::fp32) : 0;
  const int64_t before = p.kv_dtype ? keys * element_size(p.dtype) : 0;  // K and V were rounded
  const int64_t of_audits = forward ? p.query_elements() * element_size(p.dtype) +
                                          p.key_elements() * element_size(p.key_dtype())
                                    : inputs;
  return inputs + of_audits + 2 * outputs + in_fp32 + before +
         (kind == DeviceKind::cpu ? inputs + outputs : 0);
}

std::string why_no_room(const Problem& p, DeviceKind kind) {
  const int64_t needed = host_bytes_needed(p, kind);
  const int64_t available = proc_bytes("/proc/meminfo", "MemAvailable:");
  if (needed <= available - available / kKeptFree || available == 0) return "";  // 0: not known
  return fmt::format(
      "its tensors need {:.1f} GiB of host memory; {:.1f} GiB are available, of which 1/{} is "
      "kept free",
      gibibytes(needed), gibibytes(available), kKeptFree);
}

}  // namespace flashbench
