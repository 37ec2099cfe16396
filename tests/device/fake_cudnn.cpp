// A library that has nothing of cuDNN except its version.
#include <cstddef>

extern "C" size_t cudnnGetVersion() {
  return FAKE_CUDNN_VERSION;
}
