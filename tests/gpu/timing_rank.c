// One rank that measures what calls of real NCCL cost its process: wall time and CPU time.
//
//   timing_rank LIBNCCL LIBCUDART RANK RANKS ID_FILE HOSTS BLOCKS [MASKING_PLUGIN]
//
// For AllReduce and SendRecv, 64 B to 16 MiB, each in four ways: back to back, synchronised, and in
// CUDA graphs of 20 and of 200 operations. BLOCKS blocks of each, one of each kind after the other.
// A line for each block: FUNCTION BYTES WAY WALL_NS CPU_NS, by operation; CPU time is that of all
// threads of the process. Then a line "replays N N …": how often each graph was replayed, in the
// order of capturing. No header of CUDA or NCCL is needed.
//
// With MASKING_PLUGIN (masking_plugin.c) every block is measured twice, with NCCL's events switched
// on and off, in random order; " on" or " off" ends its line. Graphs are captured for either.
//
// TIMING_WITHOUT=COPY, a copy of LIBNCCL, measures every block twice, too: a call goes to LIBNCCL
// or to the copy, each with a communicator of its own. Only LIBNCCL sees NCCL_PROFILER_PLUGIN, so
// that " off" is no plugin at all, in the same process. TIMING_WITHOUT_FIRST=1 makes the copy's
// communicator first: what comes second may be slower.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FLOAT32 = 7, SUM = 0, MOST_BYTES = 16 << 20, THREAD_LOCAL = 1, MAX_CASES = 64 };

struct unique_id {
    char bytes[128];
};

static int (*cuda_malloc)(void **, size_t), (*cuda_stream_create)(void **, unsigned),
    (*cuda_stream_synchronize)(void *), (*begin_capture)(void *, int),
    (*end_capture)(void *, void **), (*instantiate)(void **, void *, unsigned long long),
    (*graph_launch)(void *, void *), (*graph_destroy)(void *), (*instance_destroy)(void *),
    (*set_device)(int);

// A copy of NCCL and the communicator made with it.
struct nccl {
    int (*get_unique_id)(struct unique_id *);
    int (*comm_init_rank)(void **, int, struct unique_id, int);
    int (*comm_destroy)(void *);
    int (*all_reduce)(void *, void *, size_t, int, int, void *, void *);
    int (*send)(void *, size_t, int, int, void *, void *);
    int (*recv)(void *, size_t, int, int, void *, void *);
    int (*group_start)(void);
    int (*group_end)(void);
    void *comm;
};

static int rank, ranks, hosts;
static void *stream, *source, *target;
static struct nccl with, without;  // the plugin; without is empty unless there is a copy
static struct nccl *nccl = &with;

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "rank %d: %s failed: %d\n", rank, what, result);
    exit(1);
}

static void *symbol(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (!address) fprintf(stderr, "no %s: %s\n", name, dlerror()), exit(1);
    return address;
}

// Local: two copies of NCCL must not find each other's functions.
static void *library(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return handle;
}

static void load_cuda(const char *path) {
    void *cuda = library(path);
    set_device = symbol(cuda, "cudaSetDevice");
    cuda_malloc = symbol(cuda, "cudaMalloc");
    cuda_stream_create = symbol(cuda, "cudaStreamCreateWithFlags");
    cuda_stream_synchronize = symbol(cuda, "cudaStreamSynchronize");
    begin_capture = symbol(cuda, "cudaStreamBeginCapture");
    end_capture = symbol(cuda, "cudaStreamEndCapture");
    instantiate = symbol(cuda, "cudaGraphInstantiateWithFlags");
    graph_launch = symbol(cuda, "cudaGraphLaunch");
    graph_destroy = symbol(cuda, "cudaGraphDestroy");
    instance_destroy = symbol(cuda, "cudaGraphExecDestroy");
}

static struct nccl load_nccl(const char *path) {
    void *handle = library(path);
    return (struct nccl){.get_unique_id = symbol(handle, "ncclGetUniqueId"),
                         .comm_init_rank = symbol(handle, "ncclCommInitRank"),
                         .comm_destroy = symbol(handle, "ncclCommDestroy"),
                         .all_reduce = symbol(handle, "ncclAllReduce"),
                         .send = symbol(handle, "ncclSend"),
                         .recv = symbol(handle, "ncclRecv"),
                         .group_start = symbol(handle, "ncclGroupStart"),
                         .group_end = symbol(handle, "ncclGroupEnd")};
}

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void synchronize(void) { check(cuda_stream_synchronize(stream), "synchronize"); }

static void call_all_reduce(size_t floats) {
    check(nccl->all_reduce(source, target, floats, FLOAT32, SUM, nccl->comm, stream), "AllReduce");
}

static void call_send_recv(size_t floats) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    check(nccl->group_start(), "GroupStart");
    check(nccl->send(source, floats, FLOAT32, next, nccl->comm, stream), "Send");
    check(nccl->recv(target, floats, FLOAT32, before, nccl->comm, stream), "Recv");
    check(nccl->group_end(), "GroupEnd");
}

enum way { BACK_TO_BACK, SYNCHRONISED, GRAPH_20, GRAPH_200, WAYS };
static const char *const way_names[] = {"back-to-back", "synchronised", "graph-20", "graph-200"};

static struct work {
    const char *function;
    void (*call)(size_t floats);
    size_t size_bytes;
    enum way way;
    int operations;  // of a block
    int graph_operations;
    void *graphs[2];  // captured with events off, on
    int replays[2];
} works[MAX_CASES];
static int work_count;
static int events_on = 1;
static void (*switch_events)(int on);

static bool in_pairs(void) { return switch_events || without.comm; }

static void set_events(int on) {
    events_on = on;
    if (switch_events) switch_events(on);
    if (without.comm) nccl = on ? &with : &without;
}

// Both ranks must make as many calls: numbers are fixed, for blocks of about 10 ms.
static int operations_of(size_t size_bytes, enum way way, bool eager) {
    static const int one_host[] = {400, 400, 300, 100}, two_hosts[] = {200, 100, 30, 6};
    int size = size_bytes <= 64 ? 0 : size_bytes <= 1 << 16 ? 1 : size_bytes <= 1 << 20 ? 2 : 3;
    int operations = hosts > 1 ? two_hosts[size] : one_host[size];
    if (eager && size == 3) operations *= 4;  // one of 64 is sampled
    int least = way == GRAPH_20 ? 20 : way == GRAPH_200 ? 200 : 1;
    return operations < least ? least : operations / least * least;
}

static void capture(struct work *work, int operations) {
    void *graph;
    check(begin_capture(stream, THREAD_LOCAL), "BeginCapture");
    for (int i = 0; i < operations; i++) work->call(work->size_bytes / sizeof(float));
    check(end_capture(stream, &graph), "EndCapture");
    check(instantiate(&work->graphs[events_on], graph, 0), "GraphInstantiate");
    check(graph_destroy(graph), "GraphDestroy");
    work->graph_operations = operations;
}

static void run(struct work *work, int operations) {
    size_t floats = work->size_bytes / sizeof(float);
    if (work->graphs[events_on]) {
        for (int i = 0; i < operations; i += work->graph_operations, work->replays[events_on]++)
            check(graph_launch(work->graphs[events_on], stream), "GraphLaunch");
    } else
        for (int i = 0; i < operations; i++) {
            work->call(floats);
            if (work->way == SYNCHRONISED) synchronize();
        }
    synchronize();
}

static void measure(struct work *work) {
    int64_t wall = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    run(work, work->operations);
    double wall_ns = (double)(clock_ns(CLOCK_MONOTONIC) - wall) / work->operations;
    double cpu_ns = (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / work->operations;
    printf("%s %zu %s %.1f %.1f%s\n", work->function, work->size_bytes, way_names[work->way],
           wall_ns, cpu_ns, in_pairs() ? events_on ? " on" : " off" : "");
}

// Connects, warms up, captures.
static void prepare(struct work *work) {
    run(work, work->operations / 4 + 1);
    if (work->way == GRAPH_20) capture(work, 20);
    if (work->way == GRAPH_200) capture(work, 200);
    if (work->graphs[events_on]) run(work, work->graph_operations);
}

// All ranks must have the same order.
static int random_bit(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (int)(state >> 40 & 1);
}

static void measure_all(int blocks) {
    for (int block = 0; block < blocks; block++)
        for (int i = 0; i < work_count; i++) {
            int first = in_pairs() ? random_bit() : 1;
            set_events(first), measure(&works[i]);
            if (in_pairs()) set_events(!first), measure(&works[i]);
        }
}

static void plan_works(void) {
    bool smallest = getenv("TIMING_SMALLEST") != NULL;  // 64 B, without graphs
    // Up to 1 MiB, back to back and in graphs of 20: where a call takes as long as the host needs.
    bool tightest = getenv("TIMING_TIGHTEST") != NULL;
    bool eager = getenv("TIMING_EAGER") != NULL;  // without graphs, whose replays are not sampled
    // Graphs of 200 operations of 16 MiB, which between hosts take as long as all else.
    bool longest = getenv("TIMING_LONGEST") != NULL;
    static const size_t sizes[] = {64, 1 << 16, 1 << 20, MOST_BYTES};
    for (int size = 0; size < 4; size++)
        for (int way = 0; way < WAYS; way++)
            for (int function = 0; function < 2; function++) {
                if (smallest && (size || way > SYNCHRONISED)) continue;
                if (tightest && (size > 2 || (way != BACK_TO_BACK && way != GRAPH_20))) continue;
                if (eager && way > SYNCHRONISED) continue;
                bool is_longest = way == GRAPH_200 && sizes[size] == MOST_BYTES;
                if (longest ? !is_longest : hosts > 1 && is_longest) continue;
                works[work_count++] =
                    (struct work){.function = function ? "SendRecv" : "AllReduce",
                                  .call = function ? call_send_recv : call_all_reduce,
                                  .size_bytes = sizes[size],
                                  .way = (enum way)way,
                                  .operations = operations_of(sizes[size], (enum way)way, eager)};
            }
}

static struct unique_id agreed_id(struct nccl *own, const char *path) {
    struct unique_id id;
    char fresh[4200];
    if (rank == 0) {
        check(own->get_unique_id(&id), "GetUniqueId");
        snprintf(fresh, sizeof fresh, "%s.new", path);
        int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        check(write(fd, &id, sizeof id) != sizeof id || close(fd) || rename(fresh, path), path);
        return id;
    }
    int fd;
    while ((fd = open(path, O_RDONLY)) < 0) usleep(1000);
    check(read(fd, &id, sizeof id) != sizeof id, path);
    close(fd);
    return id;
}

static void connect(struct nccl *own, const char *id_file, const char *plugin) {
    if (plugin) setenv("NCCL_PROFILER_PLUGIN", plugin, 1);
    else unsetenv("NCCL_PROFILER_PLUGIN");
    check(own->comm_init_rank(&own->comm, ranks, agreed_id(own, id_file), rank), "CommInitRank");
}

// The plugin's path is a copy: changing the environment may move what getenv gave.
static void connect_all(const char *library_path, const char *id_file) {
    const char *given = getenv("NCCL_PROFILER_PLUGIN"), *copy = getenv("TIMING_WITHOUT");
    char *plugin = given ? strdup(given) : NULL, without_id[4200];
    snprintf(without_id, sizeof without_id, "%s.without", id_file);
    with = load_nccl(library_path);
    bool first = getenv("TIMING_WITHOUT_FIRST") != NULL;
    if (copy) without = load_nccl(copy);
    if (copy && first) connect(&without, without_id, NULL);
    connect(&with, id_file, plugin);
    if (copy && !first) connect(&without, without_id, NULL);
    free(plugin);
}

int main(int count, char **values) {
    if (count != 8 && count != 9) return 2;
    rank = atoi(values[3]), ranks = atoi(values[4]), hosts = atoi(values[6]);
    int blocks = atoi(values[7]);
    load_cuda(values[2]);
    check(set_device(0), "SetDevice");
    check(cuda_malloc(&source, MOST_BYTES) || cuda_malloc(&target, MOST_BYTES), "malloc");
    check(cuda_stream_create(&stream, 1), "stream");
    connect_all(values[1], values[5]);
    plan_works();
    if (count == 9) switch_events = symbol(library(values[8]), "masking_plugin_set");
    for (int i = 0; i < work_count; i++) {
        for (int on = in_pairs() ? 0 : 1; on < 2; on++) set_events(on), prepare(&works[i]);
    }
    measure_all(blocks);
    printf("replays");
    for (int i = 0; i < work_count; i++)
        if (works[i].graphs[1]) printf(" %d", works[i].replays[1]);
    printf("\n");
    // CommDestroy waits until no graph holds calls of the communicator.
    for (int i = 0; i < work_count; i++)
        for (int on = 0; on < 2; on++)
            if (works[i].graphs[on])
                check(instance_destroy(works[i].graphs[on]), "GraphExecDestroy");
    check(with.comm_destroy(with.comm), "CommDestroy");
    if (without.comm) check(without.comm_destroy(without.comm), "CommDestroy");
    return 0;
}
