/* For LD_PRELOAD: the thread named by $FLASHBENCH_HUNG_THREAD never ends a copy of
   $FLASHBENCH_HUNG_BYTES bytes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* hung_thread;
static size_t hung_bytes;

__attribute__((constructor)) static void read_environment(void) {
  const char* bytes = getenv("FLASHBENCH_HUNG_BYTES");
  hung_thread = getenv("FLASHBENCH_HUNG_THREAD");
  if (bytes != NULL) hung_bytes = (size_t)atol(bytes);
}

static int hangs(size_t bytes) {
  char name[16];
  if (bytes != hung_bytes || hung_thread == NULL) return 0;
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         strcmp(name, hung_thread) == 0;
}

__attribute__((visibility("default"))) void* memcpy(void* restrict to, const void* restrict from,
                                                    size_t bytes) {
  if (hangs(bytes)) {
    for (;;) pause();
  }
  return memmove(to, from, bytes);
}
