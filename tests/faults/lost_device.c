/* For LD_PRELOAD: no worker can start once the file named by $FLASHBENCH_LOST_DEVICE exists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_worker(void) {
  char line[64] = "";
  FILE* file = fopen("/proc/self/cmdline", "rb");
  if (file == NULL) return 0;
  const size_t bytes = fread(line, 1, sizeof(line) - 1, file);
  fclose(file);
  const char* verb = line + strlen(line) + 1;
  return verb < line + bytes && strcmp(verb, "worker") == 0;
}

__attribute__((constructor)) static void abort_where_the_device_is_lost(void) {
  const char* marker = getenv("FLASHBENCH_LOST_DEVICE");
  if (marker != NULL && access(marker, F_OK) == 0 && is_worker()) abort();
}
