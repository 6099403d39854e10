// One rank that times calls over real NCCL, block by block, as its standard input asks.
//
//   latency LIBNCCL LIBCUDART RANK RANKS
//
// A line "ID_FILE CALLS BLOCKS [NAME=VALUE…]" sets the variables, makes a communicator (NCCL loads
// its profiler plugin then, and lets go of it when the last communicator is gone), times CALLS
// calls of each function in each block, answers with one line and destroys the communicator:
//
//   AllReduce MEDIAN_NS BACK_TO_BACK_NS MEDIAN_NS … SendRecv MEDIAN_NS BACK_TO_BACK_NS … CALLS
//
// BLOCKS: one letter a block, to which switching_plugin.c is set before it; "-" where another
// plugin or none is loaded. MEDIAN_NS: of single calls, from the call to the end of a stream
// synchronisation. BACK_TO_BACK_NS: mean of as many calls without waiting in between. CALLS: how
// many of NCCL's functions for data were called in blocks "o". No header of CUDA or NCCL is needed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CALLS = 100000, WARM_UP = 300, SETTLE = 20, SETTLE_US = 300 };
enum { FLOAT32 = 7, SUM = 0, MOST_BYTES = 1 << 20 };

struct unique_id {
    char bytes[128];
};

static int (*cuda_malloc)(void **, size_t), (*cuda_stream_create)(void **),
    (*cuda_stream_synchronize)(void *);
static int (*get_unique_id)(struct unique_id *),
    (*comm_init_rank)(void **, int, struct unique_id, int), (*comm_destroy)(void *);
static int (*all_reduce)(void *, void *, size_t, int, int, void *, void *),
    (*nccl_send)(void *, size_t, int, int, void *, void *),
    (*nccl_recv)(void *, size_t, int, int, void *, void *);
static int (*group_start)(void), (*group_end)(void);

static int rank, ranks;
static size_t floats;
static void *comm, *stream, *source, *target;
static int64_t times_ns[MAX_CALLS];
static long calls_made;

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s failed: %d\n", what, result);
    exit(1);
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "no %s: %s\n", name, dlerror()), exit(1);
    return found;
}

static void *library(const char *path) {
    void *opened = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!opened) fprintf(stderr, "%s\n", dlerror()), exit(1);
    return opened;
}

static void load(const char *nccl_path, const char *cudart_path) {
    void *cuda = library(cudart_path), *nccl = library(nccl_path);
    cuda_malloc = symbol(cuda, "cudaMalloc");
    cuda_stream_create = symbol(cuda, "cudaStreamCreate");
    cuda_stream_synchronize = symbol(cuda, "cudaStreamSynchronize");
    get_unique_id = symbol(nccl, "ncclGetUniqueId");
    comm_init_rank = symbol(nccl, "ncclCommInitRank");
    comm_destroy = symbol(nccl, "ncclCommDestroy");
    all_reduce = symbol(nccl, "ncclAllReduce");
    nccl_send = symbol(nccl, "ncclSend");
    nccl_recv = symbol(nccl, "ncclRecv");
    group_start = symbol(nccl, "ncclGroupStart");
    group_end = symbol(nccl, "ncclGroupEnd");
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void call_all_reduce(void) {
    check(all_reduce(source, target, floats, FLOAT32, SUM, comm, stream), "AllReduce");
    calls_made++;
}

static void call_send_recv(void) {
    check(group_start(), "GroupStart");
    check(nccl_send(source, floats, FLOAT32, (rank + 1) % ranks, comm, stream), "Send");
    check(nccl_recv(target, floats, FLOAT32, (rank + ranks - 1) % ranks, comm, stream), "Recv");
    check(group_end(), "GroupEnd");
    calls_made += 2;
}

static void synchronize(void) { check(cuda_stream_synchronize(stream), "synchronize"); }

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

// What switching_plugin.c exports.
static void (*plugin_switch)(int);
static volatile uint64_t *plugin_ticks;

static void time_block(void (*call)(void), int calls, int kind) {
    for (int i = 0; i < SETTLE; i++) call(), synchronize();
    for (int i = 0; i < calls; i++) {
        int64_t before = now_ns();
        call();
        synchronize();
        times_ns[i] = now_ns() - before;
    }
    qsort(times_ns, (size_t)calls, sizeof *times_ns, by_value);
    uint64_t ticks_before = plugin_ticks ? *plugin_ticks : 0;
    int64_t before = now_ns();
    for (int i = 0; i < calls; i++) call();
    synchronize();
    printf("%lld %lld ", (long long)times_ns[calls / 2], (long long)((now_ns() - before) / calls));
    if (plugin_ticks) check((*plugin_ticks != ticks_before) != (kind == 'c'), "switching plugins");
}

static void find_switch(void) {
    const char *path = getenv("NCCL_PROFILER_PLUGIN");
    void *plugin = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    plugin_switch = plugin ? dlsym(plugin, "switching_plugin_switch") : NULL;
    plugin_ticks = plugin ? dlsym(plugin, "switching_plugin_ticks") : NULL;
    if (plugin) dlclose(plugin);
}

static void switch_to(int kind) {
    usleep(SETTLE_US);  // lets the proxy thread report the end of the last kernel
    if (plugin_switch) plugin_switch(kind);
}

// Returns how many calls were made in blocks "o".
static long time_function(const char *name, void (*call)(void), size_t size_bytes, int calls,
                          const char *blocks) {
    long made = 0;
    printf("%s ", name);
    floats = size_bytes / sizeof(float);
    switch_to('e');
    for (int i = 0; i < WARM_UP; i++) call(), synchronize();
    for (const char *block = blocks; *block; block++) {
        switch_to(*block);
        long made_before = calls_made;
        time_block(call, calls, *block);
        if (*block == 'o') made += calls_made - made_before;
    }
    return made;
}

static struct unique_id agreed_id(const char *path) {
    struct unique_id id;
    char fresh[4200];
    if (rank == 0) {
        check(get_unique_id(&id), "GetUniqueId");
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

int main(int count, char **values) {
    if (count != 5) return 2;
    rank = atoi(values[3]), ranks = atoi(values[4]);
    load(values[1], values[2]);
    check(cuda_malloc(&source, MOST_BYTES) || cuda_malloc(&target, MOST_BYTES), "malloc");
    check(cuda_stream_create(&stream), "stream");
    static char line[8192];
    while (fgets(line, sizeof line, stdin)) {
        char *id_file = strtok(line, " \n"), *calls_text = strtok(NULL, " \n");
        char *blocks = strtok(NULL, " \n"), *setting;
        int calls = calls_text ? atoi(calls_text) : 0;
        if (calls < 1 || calls > MAX_CALLS || !blocks) return 2;
        while ((setting = strtok(NULL, " \n"))) putenv(strdup(setting));
        check(comm_init_rank(&comm, ranks, agreed_id(id_file), rank), "CommInitRank");
        find_switch();
        check(!plugin_switch && blocks[0] != '-', "finding the switching plugin");
        long made = time_function("AllReduce", call_all_reduce, 64, calls, blocks);
        made += time_function("SendRecv", call_send_recv, 64, calls, blocks);
        made += time_function("AllReduce", call_all_reduce, 1 << 10, calls, blocks);
        made += time_function("AllReduce", call_all_reduce, MOST_BYTES, calls / 10 + 1, blocks);
        switch_to('e');
        check(comm_destroy(comm), "CommDestroy");
        printf("%ld\n", made);
        fflush(stdout);
    }
    return 0;
}
