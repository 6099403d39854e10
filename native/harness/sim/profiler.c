// Finds and loads the plugin as NCCL does.
#define _GNU_SOURCE
#include "profiler.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "settings.h"

struct host profiler;

bool profiler_wants(int mask, enum nccl_event event) {
    return profiler.object && (event & nccl_events_of(profiler.version)) &&
           nccl_emits((uint32_t)mask, settings()->interface_version, event);
}

int profiler_mask(void) { return __atomic_load_n(&profiler.mask, __ATOMIC_RELAXED); }

static void *open_library(const char *name) {
    static const char whole[] = "STATIC_PLUGIN";
    size_t length = strlen(name);
    if (length <= sizeof whole - 1 && strncasecmp(name, whole, length) == 0)
        return dlopen(NULL, RTLD_NOW | RTLD_LOCAL);
    if (settings()->version >= 22803 && strcasecmp(name, "none") == 0) return NULL;
    char path[255];
    snprintf(path, sizeof path, "%s", name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    bool is_file = strchr(name, '/') || (strncmp(name, "lib", 3) == 0 && length > 3 &&
                                         strcmp(name + length - 3, ".so") == 0);
    if (library || (is_file && settings()->version >= 22705)) return library;
    snprintf(path, sizeof path, "libnccl-profiler-%.200s.so", name);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void load(void) {
    const char *name = getenv("NCCL_PROFILER_PLUGIN");
    profiler.library = open_library(name && *name ? name : "libnccl-profiler.so");
    if (!profiler.library) return;
    for (int version = settings()->interface_version; version >= 1 && !profiler.object; version--) {
        char symbol[32];
        snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
        profiler.object = dlsym(profiler.library, symbol);
        profiler.version = version;
    }
}

void profiler_load(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
}
