// What a plugin adds to a process's start and exit: loads it as NCCL does, opens a communicator,
// makes one event, lives on for a moment, and ends.
//
// usage: start_and_exit PLUGIN finalize|exit MS
// Prints ns of dlopen, of init and of the first event, then the moment at which the end begins
// (CLOCK_MONOTONIC).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../native/src/nccl_abi.h"

static void quiet(int level, unsigned long flags, const char *file, int line, const char *format,
                  ...) {
    (void)level, (void)flags, (void)file, (void)line, (void)format;
}

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void one_event(const struct nccl_profiler_v5 *plugin, void *context) {
    struct nccl_descr descr;
    void *handle = NULL;
    memset(&descr, 0, sizeof descr);
    descr.type = NCCL_COLL_API;
    descr.collApi.func = "AllReduce";
    descr.collApi.count = 1 << 20;
    descr.collApi.datatype = "ncclFloat32";
    plugin->startEvent(context, &handle, &descr);
    if (handle) plugin->stopEvent(handle);
}

int main(int count, char **values) {
    if (count != 4) return 2;
    long long start = now_ns();
    void *library = dlopen(values[1], RTLD_NOW | RTLD_LOCAL);
    const struct nccl_profiler_v5 *plugin = library ? dlsym(library, "ncclProfiler_v5") : NULL;
    if (!plugin) return 1;
    void *context = NULL;
    int mask = 0;
    long long loaded = now_ns();
    plugin->init(&context, 0xC0FFEE, &mask, "world", 2, 16, 3, quiet);
    long long opened = now_ns();
    one_event(plugin, context);
    long long called = now_ns();
    long ms = atol(values[3]);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    printf("%lld %lld %lld %lld\n", loaded - start, opened - loaded, called - opened, now_ns());
    fflush(stdout);
    if (strcmp(values[2], "finalize") == 0) plugin->finalize(context);
    return 0;
}
