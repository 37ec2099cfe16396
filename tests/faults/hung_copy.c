/* For LD_PRELOAD: the thread named by $FLASHBENCH_HUNG_THREAD never ends a copy of
   as many bytes as $FLASHBENCH_HUNG_BYTES lists, e.g. "96,3072". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char* hung_thread;
static const char* hung_bytes;

__attribute__((constructor)) static void read_environment(void) {
  hung_thread = getenv("FLASHBENCH_HUNG_THREAD");
  hung_bytes = getenv("FLASHBENCH_HUNG_BYTES");
}

static int is_listed(size_t bytes) {
  const char* next = hung_bytes;
  while (*next != '\0') {
    char* end;
    if (strtoul(next, &end, 10) == bytes) return 1;
    next = *end == ',' ? end + 1 : "";
  }
  return 0;
}

static int hangs(size_t bytes) {
  char name[16];
  if (hung_thread == NULL || hung_bytes == NULL || !is_listed(bytes)) return 0;
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
