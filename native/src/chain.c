// The chained profiler: its contexts, handles and mask.
#define _GNU_SOURCE
#include "chain.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"
#include "config.h"
#include "free_list.h"
#include "log.h"
#include "stream.h"

#define CHAIN_ONLY_BITS 16
#define CHAIN_ONLY_LIMIT (1u << CHAIN_ONLY_BITS)  // open events that only the chained profiler has
#define CAPTURED_LIMIT 65536u  // calls in CUDA graphs: parents for as long as the graph lives

static const void *objects[NCCL_NEWEST_INTERFACE + 1];  // its ncclProfiler_vN
static u32 masks[NCCL_NEWEST_INTERFACE + 1];
static int version_in_use;
static void *contexts[NO_COMM];

// Its handle for each slot of the arena.
static void **slot_handles;
// Its handles for events that this recorder does not have. Each place counts its uses, and NCCL's
// handle holds that count: a handle of an earlier use is not valid any more.
static void **chain_only_handles;
static u32 chain_only_next[CHAIN_ONLY_LIMIT], chain_only_uses[CHAIN_ONLY_LIMIT];
static u64 chain_only_free;  // a free_list
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
    size_t handles = (size_t)MAX_CHUNKS * CHUNK_SLOTS + CHAIN_ONLY_LIMIT;
    size_t bytes = handles * sizeof(void *) + CAPTURED_LIMIT * sizeof *captured_handles;
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
        for (u32 place = CHAIN_ONLY_LIMIT; place-- > 0;)
            free_list_push(&chain_only_free, chain_only_next, place);
    }
    objects[version] = object;
    version_in_use = version;
}

static void set_chained(bool is_chained) {
    callback_state.chained = is_chained;
    callback_state_settle();
}

u32 chain_init(void *context, int version, const struct comm_description *comm, nccl_log_fn log) {
    if (!objects[version]) return 0;
    void *theirs = NULL;
    int mask = (int)masks[version];
    nccl_result result;
    if (version < NCCL_FIRST_WITH_STAMPS) result = v1(version)->init(&theirs, &mask);
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
        set_chained(false);
        return 0;
    }
    u32 number = comm_number_in(context);
    if (number != NO_COMM) contexts[number] = theirs;
    masks[version] = (u32)mask;
    set_chained(true);
    return (u32)mask;
}

void chain_finalize(void *context) {
    if (!callback_state.chained || !comm_owns_context(context)) return;
    u32 number = comm_number_in(context);
    if (number != NO_COMM) v1(version_in_use)->finalize(contexts[number]);
}

// ---- handles ----
static bool is_chain_only(u64 handle) {
    return handle >> INDEX_BITS == (callback_state.nonce << STREAM_BITS | CHAIN_STREAM);
}

static void **place_of_slot(u64 handle) {
    u64 number = (handle >> INDEX_BITS) & CONTEXT_STREAM;
    if (handle >> HANDLE_BITS != callback_state.nonce || number >= MAX_STREAMS) return NULL;
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
        u32 place = (u32)handle & (CHAIN_ONLY_LIMIT - 1);
        bool valid = (handle & INDEX_MASK) >> CHAIN_ONLY_BITS == chain_only_uses[place];
        return valid ? __atomic_load_n(&chain_only_handles[place], __ATOMIC_RELAXED) : NULL;
    }
    void **theirs = place_of_slot(handle);
    if (theirs) return __atomic_load_n(theirs, __ATOMIC_RELAXED);
    u32 place = captured_place(handle);
    if (captured_handles[place].ours == handle) return captured_handles[place].theirs;
    bool is_ours = handle >> HANDLE_BITS == callback_state.nonce;
    return is_ours ? NULL : (void *)(uintptr_t)handle;  // passed on as it came
}

// The handle that NCCL gets for an event that only the chained profiler has; 0: no place left.
static u64 take_chain_only(void *theirs) {
    u32 place = free_list_pop(&chain_only_free, chain_only_next);
    if (place == FREE_LIST_EMPTY) return 0;
    chain_only_uses[place] = (chain_only_uses[place] + 1) & (u32)(INDEX_MASK >> CHAIN_ONLY_BITS);
    __atomic_store_n(&chain_only_handles[place], theirs, __ATOMIC_RELAXED);
    return callback_state.nonce << HANDLE_BITS | (u64)CHAIN_STREAM << INDEX_BITS |
           (u64)chain_only_uses[place] << CHAIN_ONLY_BITS | place;
}

static void release_chain_only(u64 handle) {
    u32 place = (u32)handle & (CHAIN_ONLY_LIMIT - 1);
    if ((handle & INDEX_MASK) >> CHAIN_ONLY_BITS != chain_only_uses[place]) return;
    chain_only_uses[place] = (chain_only_uses[place] + 1) & (u32)(INDEX_MASK >> CHAIN_ONLY_BITS);
    free_list_push(&chain_only_free, chain_only_next, place);
}

// ---- callbacks ----
static void translate(struct nccl_descr *d, u64 type, int version) {
    d->parentObj = chained_handle((u64)(uintptr_t)d->parentObj);
    if (version < NCCL_FIRST_WITH_CALLS) return;
    if (type == NCCL_COLL)
        d->coll.parentGroup = chained_handle((u64)(uintptr_t)d->coll.parentGroup);
    if (type == NCCL_P2P) d->p2p.parentGroup = chained_handle((u64)(uintptr_t)d->p2p.parentGroup);
}

static bool is_captured(const struct nccl_descr *d, u64 type, int version) {
    if (version < NCCL_FIRST_WITH_CALLS) return false;
    return (type == NCCL_COLL_API && d->collApi.graphCaptured) ||
           (type == NCCL_P2P_API && d->p2pApi.graphCaptured);
}

void chain_start(void *context, void **handle, const void *descriptor, u64 type, int version) {
    if (!nccl_emits(masks[version], version, type)) return;
    struct nccl_descr copy;
    memcpy(&copy, descriptor, nccl_descriptor_bytes(version));
    translate(&copy, type, version);
    u32 number = comm_owns_context(context) ? comm_number_in(context) : NO_COMM;
    void *their_context = number != NO_COMM ? contexts[number] : context, *theirs = NULL;
    ((const struct nccl_profiler_v5 *)objects[version])->startEvent(their_context, &theirs, &copy);
    u64 ours = (u64)(uintptr_t)*handle;
    void **place = ours ? place_of_slot(ours) : NULL;
    if (place) __atomic_store_n(place, theirs, __ATOMIC_RELAXED);
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
