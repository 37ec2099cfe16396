// "Did you mean": the known names nearest to an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashbench {

// Known names that contain `text` or begin it, or else those a few typing errors away (a third of
// its length), whatever the case of the letters; at most three, empty if none is near.
std::vector<std::string> nearest(std::string_view text, const std::vector<std::string>& known);

// The same as the end of a sentence: `; did you mean "a" or "b"?`, or nothing.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& known);

}  // namespace flashbench
