// The second profiler: its contexts, handles and mask.
#define _GNU_SOURCE
#include "chain.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "config.h"
#include "event_filter.h"
#include "log.h"
#include "stream.h"

#define VERSIONS 8
#define CHAIN_ONLY_LIMIT 65536u  // its open events that are not ours
#define CAPTURED_LIMIT 65536u    // calls in CUDA graphs: parents for as long as the graph lives

static const void *objects[VERSIONS];  // its ncclProfiler_vN
static u32 masks[VERSIONS];
static int version_in_use;
static void *contexts[NO_COMM];

// Its handle for each slot of the arena.
static void **slot_handles;
// Its handles for events that this recorder does not have: 1 + next free cell, and a count of uses
// that makes a handle valid once.
static void **chain_only_handles;
static u32 chain_only_next[CHAIN_ONLY_LIMIT], chain_only_uses[CHAIN_ONLY_LIMIT];
static u64 chain_only_top;
static struct {
    u64 ours;
    void *theirs;
} *captured_handles;

static struct nccl_profiler_v1 const *v1(int version) { return objects[version]; }

// As NCCL takes NCCL_PROFILER_PLUGIN: a library, or else the short name of one.
static void *open_library(void) {
    void *library = dlopen(config.chain, RTLD_NOW | RTLD_LOCAL);
    size_t length = strlen(config.chain);
    bool is_file =
        strchr(config.chain, '/') || (length > 3 && strcmp(config.chain + length - 3, ".so") == 0);
    if (library || is_file) return library;
    char file[sizeof config.chain + 32];
    snprintf(file, sizeof file, "libnccl-profiler-%s.so", config.chain);
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

void chain_load(int version) {
    if (!config.chain[0] || objects[version]) return;
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
    void *library = open_library();
    const void *object = library ? dlsym(library, symbol) : NULL;
    if (!object) {
        log_note("NCCLSCOPE_CHAIN=%.200s is left out: %.200s", config.chain,
                 library ? "it has no profiler of this interface version" : dlerror());
        config.chain[0] = 0;
        return;
    }
    size_t cells = (size_t)MAX_CHUNKS * CHUNK_SLOTS + CHAIN_ONLY_LIMIT;
    size_t bytes = cells * sizeof(void *) + CAPTURED_LIMIT * sizeof *captured_handles;
    if (!slot_handles) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            log_note("NCCLSCOPE_CHAIN is left out: no memory for its handles");
            config.chain[0] = 0;
            return;
        }
        slot_handles = memory;
        chain_only_handles = slot_handles + (size_t)MAX_CHUNKS * CHUNK_SLOTS;
        captured_handles = (void *)(chain_only_handles + CHAIN_ONLY_LIMIT);
        for (u32 cell = 0; cell < CHAIN_ONLY_LIMIT; cell++) chain_only_next[cell] = cell + 2;
        chain_only_next[CHAIN_ONLY_LIMIT - 1] = 0;
        chain_only_top = 1;
    }
    objects[version] = object;
    version_in_use = version;
}

static void chain_is(bool there) {
    callback_state.chained = there;
    callback_state_settle();
}

u32 chain_init(void *context, int version, const struct comm_description *comm, nccl_log_fn log) {
    if (!objects[version]) return 0;
    void *theirs = NULL;
    int mask = (int)masks[version];
    nccl_result result;
    if (version <= 3) result = v1(version)->init(&theirs, &mask);
    else if (version == 4)
        result = ((const struct nccl_profiler_v4 *)objects[version])
                     ->init(&theirs, &mask, comm->name, comm->id, comm->nodes, comm->ranks,
                            comm->rank, log);
    else
        result = ((const struct nccl_profiler_v5 *)objects[version])
                     ->init(&theirs, comm->id, &mask, comm->name, comm->nodes, comm->ranks,
                            comm->rank, log);
    if (result != 0) {
        log_note("NCCLSCOPE_CHAIN=%.200s is left out: its init failed with %d", config.chain,
                 result);
        objects[version] = NULL;
        chain_is(false);
        return 0;
    }
    u32 number = comm_number_in(context);
    if (number != NO_COMM) contexts[number] = theirs;
    masks[version] = (u32)mask;
    chain_is(true);
    return (u32)mask;
}

void chain_finalize(void *context) {
    if (!callback_state.chained || !comm_owns_context(context)) return;
    u32 number = comm_number_in(context);
    if (number != NO_COMM) v1(version_in_use)->finalize(contexts[number]);
}

// ---- handles ----
static bool is_chain_only(u64 handle) {
    return handle >> INDEX_BITS == (callback_state.nonce << 11 | CHAIN_STREAM);
}

static void **place_of_slot(u64 handle) {
    u64 number = (handle >> INDEX_BITS) & CONTEXT_STREAM;
    if (handle >> 48 != callback_state.nonce || number >= MAX_STREAMS) return NULL;
    u64 index = handle & INDEX_MASK;
    union slot *const *window = streams[number].window;
    union slot *chunk =
        __atomic_load_n(&window[(index >> CHUNK_SLOTS_LOG2) % WINDOW_TABLE], __ATOMIC_RELAXED);
    if (!chunk) return NULL;
    union slot *slot = chunk + (index & (CHUNK_SLOTS - 1));
    u64 head = slot_head(slot);
    if (!head_is_event(head) || head_check(head) != (u32)index) return NULL;
    return &slot_handles[slot - arena_chunk(0)];
}

static u32 captured_place(u64 handle) {
    return (u32)((handle * 0x9E3779B97F4A7C15u) >> 48) % CAPTURED_LIMIT;
}

static void *chained_handle(u64 handle) {
    if (handle == 0) return NULL;
    if (is_chain_only(handle)) {
        u32 cell = (u32)handle & (CHAIN_ONLY_LIMIT - 1);
        bool valid = (handle & INDEX_MASK) >> 16 == chain_only_uses[cell];
        return valid ? __atomic_load_n(&chain_only_handles[cell], __ATOMIC_RELAXED) : NULL;
    }
    void **cell = place_of_slot(handle);
    if (cell) return __atomic_load_n(cell, __ATOMIC_RELAXED);
    u32 place = captured_place(handle);
    if (captured_handles[place].ours == handle) return captured_handles[place].theirs;
    return handle >> 48 == callback_state.nonce
               ? NULL
               : (void *)(uintptr_t)handle;  // not ours: as it came
}

// A handle for an event that only they have; 0: no cell left.
static u64 take_chain_only(void *theirs) {
    u64 top = __atomic_load_n(&chain_only_top, __ATOMIC_ACQUIRE), below;
    do {
        if ((u32)top == 0) return 0;
        below = ((top >> 32) + 1) << 32 |
                __atomic_load_n(&chain_only_next[(u32)top - 1], __ATOMIC_RELAXED);
    } while (!__atomic_compare_exchange_n(&chain_only_top, &top, below, true, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    u32 cell = (u32)top - 1;
    chain_only_uses[cell] = (chain_only_uses[cell] + 1) & (u32)(INDEX_MASK >> 16);
    __atomic_store_n(&chain_only_handles[cell], theirs, __ATOMIC_RELAXED);
    return callback_state.nonce << 48 | (u64)CHAIN_STREAM << INDEX_BITS |
           (u64)chain_only_uses[cell] << 16 | cell;
}

static void release_chain_only(u64 handle) {
    u32 cell = (u32)handle & (CHAIN_ONLY_LIMIT - 1);
    if ((handle & INDEX_MASK) >> 16 != chain_only_uses[cell]) return;
    chain_only_uses[cell] = (chain_only_uses[cell] + 1) & (u32)(INDEX_MASK >> 16);
    u64 top = __atomic_load_n(&chain_only_top, __ATOMIC_RELAXED), above;
    do {
        __atomic_store_n(&chain_only_next[cell], (u32)top, __ATOMIC_RELAXED);
        above = ((top >> 32) + 1) << 32 | (cell + 1);
    } while (!__atomic_compare_exchange_n(&chain_only_top, &top, above, true, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
}

// ---- callbacks ----
static size_t descriptor_bytes(int version) {
    static const size_t bytes[VERSIONS] = {0,
                                           sizeof(struct nccl_descr_v1),
                                           sizeof(struct nccl_descr_v2),
                                           sizeof(struct nccl_descr_v3),
                                           NCCL_DESCR_V4_BYTES,
                                           NCCL_DESCR_V5_BYTES,
                                           NCCL_DESCR_V5_BYTES,
                                           NCCL_DESCR_V7_BYTES};
    return bytes[version];
}

static void translate(struct nccl_descr *d, u64 type, int version) {
    d->parentObj = chained_handle((u64)(uintptr_t)d->parentObj);
    if (version < 5) return;
    if (type == NCCL_COLL)
        d->coll.parentGroup = chained_handle((u64)(uintptr_t)d->coll.parentGroup);
    if (type == NCCL_P2P) d->p2p.parentGroup = chained_handle((u64)(uintptr_t)d->p2p.parentGroup);
}

static bool is_captured(const struct nccl_descr *d, u64 type, int version) {
    if (version < 5) return false;
    return (type == NCCL_COLL_API && d->collApi.graphCaptured) ||
           (type == NCCL_P2P_API && d->p2pApi.graphCaptured);
}

void chain_start(void *context, void **handle, const void *descriptor, u64 type, int version) {
    if (!event_filter_wants(masks[version], version, type)) return;
    struct nccl_descr copy;
    memcpy(&copy, descriptor, descriptor_bytes(version));
    translate(&copy, type, version);
    u32 number = comm_owns_context(context) ? comm_number_in(context) : NO_COMM;
    void *their_context = number != NO_COMM ? contexts[number] : context, *theirs = NULL;
    ((const struct nccl_profiler_v5 *)objects[version])->startEvent(their_context, &theirs, &copy);
    u64 ours = (u64)(uintptr_t)*handle;
    void **cell = ours ? place_of_slot(ours) : NULL;
    if (cell) __atomic_store_n(cell, theirs, __ATOMIC_RELAXED);
    else if (theirs) *handle = (void *)(uintptr_t)take_chain_only(theirs);
    if (ours && theirs && is_captured(descriptor, type, version)) {
        captured_handles[captured_place(ours)].theirs = theirs;
        captured_handles[captured_place(ours)].ours = ours;
    }
}

bool chain_state(u64 handle, int state, const void *args) {
    void *theirs = chained_handle(handle);
    if (theirs)
        ((const struct nccl_profiler_v5 *)objects[version_in_use])
            ->recordEventState(theirs, state, args);
    return is_chain_only(handle);
}

bool chain_stop(u64 handle) {
    void *theirs = chained_handle(handle);
    if (theirs) v1(version_in_use)->stopEvent(theirs);
    if (!is_chain_only(handle)) return false;
    release_chain_only(handle);
    return true;
}
