/* A plugin that the tool must refuse; a macro chooses its defect. */
#include "flashbench/plugin.h"

#ifndef NO_VERSION
#ifndef VERSION
#define VERSION FLASHBENCH_PLUGIN_ABI_VERSION
#endif
const uint32_t flashbench_plugin_abi_version = VERSION;
#endif

#ifndef NO_TABLE
#ifndef SIZE
#define SIZE sizeof(flashbench_plugin)
#endif
#ifndef KIND
#define KIND FLASHBENCH_CPU
#endif
const flashbench_plugin flashbench_plugin_table = {
    .size = SIZE, .description = "has no functions", .device_kind = KIND};
#endif
