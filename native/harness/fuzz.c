// Hostile handles: NULL, random, near-valid, another process's, recycled, repeated, another
// thread's.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "../src/nccl_abi.h"
#include "host.h"
#include "load.h"
#include "random.h"

enum { THREADS = 2, KEPT = 256 };

static const struct fuzz_options *options;
static struct host host;
static void *context;
static void *shared_handle;

static uint64_t hostile(uint64_t handle, uint64_t *random, void *const *kept) {
    switch (next_random(random) % 16) {
        case 0: return 0;
        case 1: return next_random(random);
        case 2: return handle ^ (1ull << (next_random(random) % 64));
        case 3: return handle + next_random(random) % (1 << 20);
        case 4: return handle - next_random(random) % (1 << 24);
        case 5: return (uint64_t)__atomic_load_n(&shared_handle, __ATOMIC_RELAXED);
        case 6: return (uint64_t)kept[next_random(random) % KEPT];
        case 7:
            return (uint64_t)context ^
                   (next_random(random) % 2 ? 0 : 1ull << (next_random(random) % 64));
        default: return handle;
    }
}

static void *work(void *argument) {
    uint64_t random = options->seed * 0x9E3779B97F4A7C15ull + (uint64_t)(intptr_t)argument + 1;
    void *kept[KEPT] = {0};
    for (uint64_t calls = 0; calls < options->calls / THREADS;) {
        uint64_t bits = next_random(&random);
        struct host_event event = {.type = 1ull << (bits % (NCCL_EVENT_COUNT + 1)),
                                   .rank = (int)bits,
                                   .func = "AllReduce",
                                   .dtype = "ncclFloat32",
                                   .algo = bits & 1024 ? "RING" : NULL,
                                   .proto = "LL",
                                   .parent = (void *)next_random(&random),
                                   .step = (int)(bits >> 40),
                                   .net_id = bits & 2048 ? (int64_t)next_random(&random) : 0,
                                   .net_data = NULL};
        void *ctx = bits & 0x700000 ? context : (void *)hostile((uint64_t)context, &random, kept);
        void *handle = bits & 0x800000 ? kept[bits % KEPT] : NULL;
        bool is_unknown = event.type > NCCL_EVENTS_NEWEST;  // more than a byte
        if (is_unknown && host.version < NCCL_FIRST_WITH_CALLS) event.type = NCCL_NET_PLUGIN;
        host_start(&host, ctx, &handle, &event);
        uint64_t victim = hostile((uint64_t)handle, &random, kept);
        host_state(&host, (void *)victim, (int)(bits >> 32 & 63), bits & 4096, next_random(&random),
                   (int)bits);
        host_stop(&host, (void *)hostile(victim, &random, kept));
        calls += 3;
        kept[calls % KEPT] = handle;
        if (calls % 1024 < 3) __atomic_store_n(&shared_handle, handle, __ATOMIC_RELAXED);
    }
    host_thread_done();
    return NULL;
}

int fuzz(const struct fuzz_options *chosen) {
    options = chosen;
    pthread_t threads[THREADS];
    if (!host_load(&host, options->plugin, options->version)) return 1;
    host_init(&host, &context, &(struct host_comm){1, "fuzz", 1, 2, 0});
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    host_finalize(&host, (void *)0x1234);
    host_finalize(&host, NULL);
    host_finalize(&host, context);
    printf("made %llu hostile calls of interface v%d\n", (unsigned long long)options->calls,
           options->version);
    return 0;
}
