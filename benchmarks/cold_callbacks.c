// Cost of the callbacks of one NCCL call when other code has run in between: replays the callbacks
// of a call through several plugins, block by block in turn, with work between them that goes
// through as much code and data as NCCL and the driver do.
//
// usage: cold_callbacks ROUNDS CALLS CPU WALK_MB NAME=PLUGIN…, the callbacks on standard input
// A callback is a line "start TYPE HANDLE PARENT PIECES", "state NUMBER HANDLE 0 PIECES" or "stop 0
// HANDLE 0 PIECES": handles are small numbers (parent 0: none), PIECES of work come before it.
// WALK_MB of memory are walked before each call, unmeasured; 0: none. The first plugin says which
// events NCCL would report. Captures go to NAME below COLD_CALLBACKS_DIR.
// Prints one line per plugin and callback: name, callback, then the median ns of each round.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../native/src/nccl_abi.h"

enum { MAX_PLUGINS = 8, MAX_ROUNDS = 1000, MAX_CALLS = 1000, MAX_CALLBACKS = 64, HANDLES = 32 };
enum { PIECES = 1024, WARM_UP = 5 };

// ---- work: functions of two cache lines each, each with data of its own ----
static volatile uint64_t work_data[PIECES * 16];

#define PIECE(n)                                                                    \
    static __attribute__((noinline, aligned(128))) uint64_t piece_##n(uint64_t x) { \
        x += work_data[(uint64_t)0x##n * 16];                                       \
        if (x & 1) x ^= 0x9E3779B97F4A7C15u + 0x##n;                                \
        x = (x << 7 | x >> 57) * 5 + 0x##n;                                         \
        x ^= x >> 31;                                                               \
        x *= 0xD6E8FEB86659FD93u + 0x##n;                                           \
        if (x & 2) x += work_data[(uint64_t)0x##n * 16 + 1];                        \
        x ^= x >> 29;                                                               \
        work_data[(uint64_t)0x##n * 16 + 2] = x;                                    \
        return x;                                                                   \
    }
#define NAME_PIECE(n) piece_##n,
// clang-format off
#define TIMES_16(DO, n)                                                     \
    DO(n##0) DO(n##1) DO(n##2) DO(n##3) DO(n##4) DO(n##5) DO(n##6) DO(n##7) \
    DO(n##8) DO(n##9) DO(n##a) DO(n##b) DO(n##c) DO(n##d) DO(n##e) DO(n##f)
#define TIMES_256(DO, n)                                                        \
    TIMES_16(DO, n##0) TIMES_16(DO, n##1) TIMES_16(DO, n##2) TIMES_16(DO, n##3) \
    TIMES_16(DO, n##4) TIMES_16(DO, n##5) TIMES_16(DO, n##6) TIMES_16(DO, n##7) \
    TIMES_16(DO, n##8) TIMES_16(DO, n##9) TIMES_16(DO, n##a) TIMES_16(DO, n##b) \
    TIMES_16(DO, n##c) TIMES_16(DO, n##d) TIMES_16(DO, n##e) TIMES_16(DO, n##f)
// clang-format on
#define ALL_PIECES(DO) TIMES_256(DO, 0) TIMES_256(DO, 1) TIMES_256(DO, 2) TIMES_256(DO, 3)
ALL_PIECES(PIECE)
static uint64_t (*const pieces[PIECES])(uint64_t) = {ALL_PIECES(NAME_PIECE)};

static uint16_t order[PIECES];
static unsigned next_piece;

static void shuffle(void) {
    uint32_t random = 1;
    for (unsigned i = 0; i < PIECES; i++) order[i] = (uint16_t)i;
    for (unsigned i = PIECES - 1; i > 0; i--) {
        random = random * 1664525u + 1013904223u;
        unsigned other = (random >> 8) % (i + 1);
        uint16_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static void work(unsigned count) {
    static volatile uint64_t sink;
    uint64_t x = sink;
    while (count--) x = pieces[order[next_piece++ % PIECES]](x);
    sink = x;
}

static void walk(const volatile char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 64) (void)memory[at];
}

// ---- the call ----
struct callback {
    char kind;  // s, r, e as in start, record state, end
    uint64_t type_or_state;
    unsigned handle, parent, gap;
    struct nccl_descr descr;
};
struct plugin {
    const char *name;
    const struct nccl_profiler_v6 *volatile calls;
    void *context;
    uint64_t ticks[MAX_CALLBACKS][MAX_ROUNDS];
};

static struct callback callbacks[MAX_CALLBACKS];
static unsigned callback_count;

static void describe(struct callback *callback) {
    struct nccl_descr *d = &callback->descr;
    d->type = callback->type_or_state;
    switch (d->type) {
        case NCCL_GROUP_API: d->groupApi.groupDepth = 1; break;
        case NCCL_COLL_API:
            d->collApi.func = "AllReduce", d->collApi.count = 16,
            d->collApi.datatype = "ncclFloat32", d->collApi.stream = d;
            break;
        case NCCL_P2P_API:
            d->p2pApi.func = callback->handle % 2 ? "Send" : "Recv", d->p2pApi.count = 16,
            d->p2pApi.datatype = "ncclFloat32", d->p2pApi.stream = d;
            callbacks[0].descr.groupApi.groupDepth = 2;  // the user's own group
            break;
        case NCCL_COLL:
            d->rank = 1, d->coll.func = "AllReduce", d->coll.count = 16,
            d->coll.datatype = "ncclFloat32", d->coll.nChannels = 2, d->coll.nWarps = 16,
            d->coll.algo = "RING", d->coll.proto = "LL";
            break;
        case NCCL_P2P:
            d->rank = 1, d->p2p.func = callback->handle % 2 ? "Send" : "Recv", d->p2p.count = 16,
            d->p2p.datatype = "ncclFloat32", d->p2p.nChannels = 1;
            break;
        default: break;
    }
}

static void read_callbacks(uint64_t reported) {
    char kind[8];
    unsigned type_or_state, handle, parent, gap, gap_left_out = 0;
    uint32_t left_out = 0;
    while (callback_count < MAX_CALLBACKS &&
           scanf("%7s %u %u %u %u", kind, &type_or_state, &handle, &parent, &gap) == 5) {
        struct callback *callback = &callbacks[callback_count];
        *callback = (struct callback){.kind = strcmp(kind, "start") == 0   ? 's'
                                              : strcmp(kind, "state") == 0 ? 'r'
                                                                           : 'e',
                                      .type_or_state = type_or_state,
                                      .handle = handle % HANDLES,
                                      .parent = parent % HANDLES,
                                      .gap = gap + gap_left_out};
        if (callback->kind == 's' && !(callback->type_or_state & reported))
            left_out |= 1u << callback->handle;
        gap_left_out = left_out >> callback->handle & 1 ? callback->gap : 0;
        if (left_out >> callback->handle & 1) continue;
        describe(callback);
        callback_count++;
    }
}

// ---- measuring ----
// Waits for what came before, so that a callback is charged for all that it loads.
static inline uint64_t ticks_in_order(void) {
#if defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("isb; mrs %0, cntvct_el0; isb" : "=r"(ticks)::"memory");
    return ticks;
#else
    uint32_t low, high;
    __asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
#endif
}

static uint64_t ticks[MAX_CALLBACKS][MAX_CALLS];

static void call(const struct plugin *plugin, int number) {
    static void *handles[HANDLES], *group;
    static uint64_t sequence;
    struct nccl_descr d;
    sequence++;
    for (unsigned i = 0; i < callback_count; i++) {
        const struct callback *callback = &callbacks[i];
        work(callback->gap);
        void **handle = &handles[callback->handle];
        const struct nccl_profiler_v6 *calls = plugin->calls;
        d = callback->descr;
        d.parentObj = handles[callback->parent];
        if (d.type == NCCL_COLL) d.coll.seqNumber = sequence, d.coll.parentGroup = group;
        if (d.type == NCCL_P2P) d.p2p.parentGroup = group;
        uint64_t before = ticks_in_order();
        if (callback->kind == 's') calls->startEvent(plugin->context, handle, &d);
        else if (!*handle) continue;
        else if (callback->kind == 'r')
            calls->recordEventState(*handle, (int)callback->type_or_state, NULL);
        else calls->stopEvent(*handle);
        if (number >= 0) ticks[i][number] = ticks_in_order() - before;
        if (callback->kind == 's' && d.type == NCCL_GROUP) group = *handle;
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// The median ticks of each callback: preempted ones do not count.
static void block(struct plugin *plugin, int round, int calls, const volatile char *memory,
                  size_t bytes) {
    memset(ticks, 0, sizeof ticks);
    for (int i = -WARM_UP; i < calls; i++) {
        walk(memory, bytes);
        next_piece = 0;
        call(plugin, i);
    }
    for (unsigned i = 0; round >= 0 && i < callback_count; i++) {
        qsort(ticks[i], (size_t)calls, sizeof **ticks, by_value);
        plugin->ticks[i][round] = ticks[i][calls / 2];
    }
}

static double ticks_per_ns(void) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    uint64_t from = ticks_in_order();
    usleep(100000);
    clock_gettime(CLOCK_MONOTONIC, &b);
    uint64_t to = ticks_in_order();
    return (double)(to - from) /
           ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec));
}

static void quiet(int level, unsigned long flags, const char *file, int line, const char *format,
                  ...) {
    (void)level, (void)flags, (void)file, (void)line, (void)format;
}

// Two recorders in one process would name their memory alike.
static void make_room_for_another(void) {
    char pattern[64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "/dev/shm/ncclscope-*/*.%d.*", (int)getpid());
    if (glob(pattern, 0, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
    globfree(&found);
}

static int load(struct plugin *plugin, char *argument) {
    char *path = strchr(argument, '=');
    int mask = 0;
    *path++ = 0;
    plugin->name = argument;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    plugin->calls = dlsym(library, "ncclProfiler_v6");
    make_room_for_another();
    char directory[4096];
    snprintf(directory, sizeof directory, "%s/%s", getenv("COLD_CALLBACKS_DIR"), plugin->name);
    setenv("NCCLSCOPE_DIR", directory, 1);
    plugin->calls->init(&plugin->context, 0xabcdef, &mask, "world", 2, 2, 1, quiet);
    return mask;
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    int rounds = atoi(argv[1]), calls = atoi(argv[2]), cpu = atoi(argv[3]), plugins = argc - 5;
    size_t bytes = (size_t)atoi(argv[4]) << 20;
    if (rounds > MAX_ROUNDS || calls > MAX_CALLS || plugins > MAX_PLUGINS) return 2;
    static struct plugin all[MAX_PLUGINS];
    int mask = load(&all[0], argv[5]);
    for (int i = 1; i < plugins; i++) load(&all[i], argv[5 + i]);
    read_callbacks((uint64_t)mask | NCCL_GROUP);
    char *memory = malloc(bytes + 1);
    memset(memory, 1, bytes + 1);
    shuffle();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);  // after init: helper threads stay free to go elsewhere
    for (int round = -1; round < rounds; round++)  // the first one warms up
        for (int turn = 0; turn < plugins; turn++)
            block(&all[(turn + round + 1) % plugins], round, calls, memory, bytes);
    double per_ns = ticks_per_ns();
    for (int i = 0; i < plugins; i++) {
        for (unsigned k = 0; k < callback_count; k++) {
            printf("%s %c%llu", all[i].name, callbacks[k].kind,
                   (unsigned long long)callbacks[k].type_or_state);
            for (int round = 0; round < rounds; round++)
                printf(" %.1f", (double)all[i].ticks[k][round] / per_ns);
            printf("\n");
        }
        all[i].calls->finalize(all[i].context);
    }
    return 0;
}
