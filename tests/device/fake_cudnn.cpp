// A library with nothing of cuDNN but its version.
#include <cstddef>

extern "C" size_t cudnnGetVersion() {
  return FAKE_CUDNN_VERSION;
}
