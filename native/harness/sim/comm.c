// Making, splitting and destroying communicators.
#define _GNU_SOURCE
#include "comm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cuda_api.h"
#include "profiler.h"
#include "settings.h"
#include "stream.h"

static const char segment_prefix[] = "ncclscope-sim-";
enum { GPU_STEP_NS = 32 };

static uint64_t mix(uint64_t hash, const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        hash ^= ((const unsigned char *)bytes)[i];
        hash *= 0x100000001B3ull;
    }
    return hash ^ hash >> 29;
}

// ---- ids: the name of the shared segment ----
// Segments of dead processes are left when a rank never came.
static void remove_abandoned(void) {
    DIR *directory = opendir("/dev/shm");
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (strncmp(entry->d_name, segment_prefix, sizeof segment_prefix - 1) != 0) continue;
        struct stat info;
        int pid = atoi(entry->d_name + sizeof segment_prefix - 1);
        bool own = fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                   info.st_uid == getuid();
        if (own && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
            unlinkat(dirfd(directory), entry->d_name, 0);
    }
    closedir(directory);
}

ncclResult_t comm_new_id(ncclUniqueId *id) {
    uint64_t random;
    remove_abandoned();
    if (syscall(SYS_getrandom, &random, sizeof random, 0) != sizeof random) return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%s%d-%016llx", segment_prefix, (int)getpid(),
             (unsigned long long)random);
    return ncclSuccess;
}

static bool is_id(const ncclUniqueId *id) {
    size_t length = strnlen(id->internal, sizeof id->internal);
    return length < 48 && strncmp(id->internal, segment_prefix, sizeof segment_prefix - 1) == 0 &&
           !memchr(id->internal, '/', length);
}

// ---- hosts ----
static uint64_t host_here(int global_rank) {
    char text[256];
    const char *posed = getenv("NCCL_HOSTID");
    if (posed && *posed) snprintf(text, sizeof text, "%s", posed);
    else snprintf(text, sizeof text, "host %d", settings_host_of(global_rank));
    return mix(0xCBF29CE484222325ull, text, strlen(text));
}

static int count_nodes(const struct comm *comm) {
    int nodes = 0;
    for (int rank = 0; rank < comm->ranks; rank++) {
        bool seen = false;
        for (int before = 0; before < rank; before++)
            seen |= !comm_over_network(comm, before, rank);
        nodes += !seen;
    }
    return nodes;
}

int comm_global_rank(const struct comm *comm, int rank) {
    return fabric_member(comm->fabric, rank)->global_rank;
}
bool comm_over_network(const struct comm *comm, int a, int b) {
    return fabric_member(comm->fabric, a)->host != fabric_member(comm->fabric, b)->host;
}

// ---- the GPU's timer: Unix time, off by what the scenario says ----
uint64_t comm_gpu_ns(const struct comm *comm, int64_t t) {
    static int64_t unix_ns;  // at time 0 of the machine's clock
    if (!__atomic_load_n(&unix_ns, __ATOMIC_RELAXED)) {
        struct timespec now;
        syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
        int64_t real_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
        __atomic_store_n(&unix_ns, real_ns - sim_now_ns(), __ATOMIC_RELAXED);
    }
    int rank = comm_global_rank(comm, comm->rank);
    int64_t offset_ns = 0;
    for (int i = 0; i < settings()->gpu_clock_count; i++) {
        const struct gpu_clock *clock = &settings()->gpu_clocks[i];
        if (clock->rank != rank) continue;
        double drift = (double)(t - fabric_origin_ns(comm->fabric)) * clock->drift_ppm * 1e-6;
        offset_ns = clock->offset_ns + (int64_t)drift;
    }
    return (uint64_t)(t + unix_ns + offset_ns) / GPU_STEP_NS * GPU_STEP_NS;
}

// ---- making ----
static const char *name_in(const ncclConfig_t *config) {
    bool has = config && config->size >= sizeof *config && settings()->version >= 22700;
    return has ? config->commName : NULL;
}

static void tell_plugin(struct comm *comm, const char *name) {
    profiler_load();
    if (!profiler.object) return;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // the mask is the process's
    pthread_mutex_lock(&lock);
    int result = host_init(&profiler, &comm->context,
                           &(struct host_comm){.id = comm->id,
                                               .name = name,
                                               .nodes = comm->nodes,
                                               .ranks = comm->ranks,
                                               .rank = comm->rank});
    comm->reported = result == 0;
    pthread_mutex_unlock(&lock);
}

static void say_that_it_is_a_simulation(const struct comm *comm) {
    static bool said;
    if (comm->rank == 0 && comm_global_rank(comm, 0) == 0 &&
        !__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
        fprintf(stderr, "%s\n", settings()->simulation);
}

static ncclResult_t join(struct comm *comm, int global_rank, uint64_t host, int64_t origin_ns,
                         const char *name, const char **why) {
    comm->fabric =
        fabric_join(comm->segment, comm->ranks, comm->rank, host, global_rank, origin_ns, why);
    if (!comm->fabric) return ncclSystemError;
    comm->id = mix(0xCBF29CE484222325ull, comm->segment, strlen(comm->segment));
    comm->nodes = count_nodes(comm);
    cudaGetDevice(&comm->device);
    pthread_mutex_init(&comm->hand_lock, NULL);
    pthread_mutex_init(&comm->turn_lock, NULL);
    pthread_cond_init(&comm->turn_changed, NULL);
    say_that_it_is_a_simulation(comm);
    if (settings_never_joins(global_rank, name))
        for (;;) pause();
    tell_plugin(comm, name);
    // NCCL goes on to connect ranks: nobody is done before all have come so far.
    int64_t own[2] = {0}, all[MAX_RANKS][2];
    *why = "the communicator was aborted";
    return fabric_exchange(comm->fabric, own, all) ? ncclSuccess : ncclInternalError;
}

ncclResult_t comm_make(struct comm **made, int ranks, int rank, const ncclUniqueId *id,
                       const ncclConfig_t *config, const char **why) {
    const char *given = getenv("RANK"), *world = getenv("WORLD_SIZE");
    *why = settings()->problem;
    if (*why) return ncclInvalidUsage;
    *why = "a simulated communicator has 1 to 64 ranks";
    if (ranks < 1 || ranks > MAX_RANKS) return ncclInvalidArgument;
    *why = "rank and id do not fit";
    if (rank < 0 || rank >= ranks || !is_id(id)) return ncclInvalidArgument;
    struct comm *comm = calloc(1, sizeof *comm);
    comm->ranks = ranks;
    comm->rank = rank;
    snprintf(comm->segment, sizeof comm->segment, "%.48s", id->internal);
    // A process may hold several ranks of a job; then RANK is not theirs.
    bool is_world = world && atoi(world) == ranks;
    int global_rank = given && *given && !is_world ? atoi(given) : rank;
    ncclResult_t result =
        join(comm, global_rank, host_here(global_rank), sim_now_ns(), name_in(config), why);
    if (result != ncclSuccess) free(comm);
    else *made = comm;
    return result;
}

ncclResult_t comm_split(struct comm *comm, int color, int key, struct comm **made,
                        const ncclConfig_t *config, const char **why) {
    int64_t own[2] = {color, key}, all[MAX_RANKS][2];
    *why = "the communicator was aborted";
    *made = NULL;
    if (!fabric_exchange(comm->fabric, own, all)) return ncclInternalError;
    int number = comm->splits++;
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    struct comm *child = calloc(1, sizeof *child);
    for (int rank = 0; rank < comm->ranks; rank++) {
        if (all[rank][0] != color) continue;
        child->ranks++;
        child->rank += all[rank][1] < key || (all[rank][1] == key && rank < comm->rank);
    }
    uint64_t parts[3] = {comm->id, (uint64_t)number, (uint64_t)color};
    // Named after the parent's maker, whose life says whether it is still wanted.
    int maker = atoi(comm->segment + sizeof segment_prefix - 1);
    snprintf(child->segment, sizeof child->segment, "%s%d-%016llx", segment_prefix, maker,
             (unsigned long long)mix(0xCBF29CE484222325ull, parts, sizeof parts));
    const struct member *who = fabric_member(comm->fabric, comm->rank);
    ncclResult_t result = join(child, who->global_rank, who->host, fabric_origin_ns(comm->fabric),
                               name_in(config), why);
    if (result != ncclSuccess) free(child);
    else *made = child;
    return result;
}

void comm_need_progress(struct comm *comm) {
    if (comm->poller) return;
    bool own_thread = settings()->version >= 23100;
    comm->poller = progress_make(comm->fabric, comm->context, comm->rank, !own_thread);
    comm->proxy = comm->poller;
    if (own_thread && comm->nodes > 1)
        comm->proxy = progress_make(comm->fabric, comm->context, comm->rank, true);
}

// ---- ending ----
void comm_wait(struct comm *comm) {
    pthread_mutex_lock(&comm->turn_lock);
    while (comm->run < comm->launched && !fabric_aborted(comm->fabric))
        pthread_cond_wait(&comm->turn_changed, &comm->turn_lock);
    pthread_mutex_unlock(&comm->turn_lock);
}

void comm_destroy(struct comm *comm, bool abort) {
    if (abort) {
        fabric_abort(comm->fabric);
        pthread_mutex_lock(&comm->turn_lock);
        // Works notice the abort one after the other.
        while (comm->run < comm->launched) pthread_cond_wait(&comm->turn_changed, &comm->turn_lock);
        pthread_mutex_unlock(&comm->turn_lock);
    } else {
        comm_wait(comm);
    }
    if (comm->proxy && comm->proxy != comm->poller) progress_end(comm->proxy, !abort);
    // From 2.31 on the last kernel events are thrown away.
    if (comm->poller) progress_end(comm->poller, !abort && settings()->version < 23100);
    if (comm->reported) host_finalize(&profiler, comm->context);
    fabric_leave(comm->fabric);
    free(comm);
}
