// The axes of a case as text.
#include <fmt/format.h>

#include "plan/config.h"

namespace flashbench {

std::string Case::key() const {
  std::string text = problem.id() + "/" + inputs.id();
  if (placement != Placement::contiguous) text += fmt::format("/{}", name(placement));
  return text;
}

std::vector<std::pair<std::string, std::string>> axes(const Case& c) {
  const Problem& p = c.problem;
  const auto text = [](auto value) { return fmt::format("{}", value); };
  return {{"pass", text(name(p.pass))},
          {"dtype", text(name(p.dtype))},
          {"mask", text(name(p.mask))},
          {"layout", text(name(p.layout))},
          {"head_dim", text(p.head_dim)},
          {"scale", p.scale ? text(*p.scale) : "default"},
          {"q_heads", text(p.q_heads)},
          {"kv_heads", text(p.kv_heads)},
          {"batch", text(p.batch)},
          {"q_len", text(p.q_len)},
          {"kv_len", text(p.kv_len)},
          {"distribution", text(name(c.inputs.distribution))},
          {"placement", text(name(c.placement))},
          {"seed", text(c.inputs.seed)}};
}

}  // namespace flashbench
