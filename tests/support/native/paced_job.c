// A job of two ranks on the simulated NCCL whose own time is known: AllReduce, wait, pause.
//
//   paced_job LIBRARY CALLS PAUSE_US      CALLS 0: for ever
//
// Rank 0 prints "calls a second: RATE" and "a call takes: US", the median with its pause, at the
// end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct unique_id {
    char bytes[128];
};
static struct meeting {
    struct unique_id id;
    atomic_int ready;
} *meeting;

enum { MOST = 100000 };
static double took_s[MOST];

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void check(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "%s failed: %d\n", what, result);
    exit(1);
}

static int run_rank(const char *library, int rank, long calls, useconds_t pause_us) {
    void *nccl = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!nccl) return fprintf(stderr, "%s\n", dlerror()), 1;
    int (*get_id)(struct unique_id *) = (int (*)(struct unique_id *))dlsym(nccl, "ncclGetUniqueId");
    int (*init)(void **, int, struct unique_id, int) =
        (int (*)(void **, int, struct unique_id, int))dlsym(nccl, "ncclCommInitRank");
    int (*all_reduce)(void *, void *, size_t, int, int, void *, void *) =
        (int (*)(void *, void *, size_t, int, int, void *, void *))dlsym(nccl, "ncclAllReduce");
    int (*destroy)(void *) = (int (*)(void *))dlsym(nccl, "ncclCommDestroy");
    int (*stream_create)(void **) = (int (*)(void **))dlsym(nccl, "cudaStreamCreate");
    int (*synchronize)(void *) = (int (*)(void *))dlsym(nccl, "cudaStreamSynchronize");
    int (*set_device)(int) = (int (*)(int))dlsym(nccl, "cudaSetDevice");
    void *comm, *stream;
    static char data[2][64];
    check(set_device(rank), "cudaSetDevice");
    if (rank == 0) {
        check(get_id(&meeting->id), "ncclGetUniqueId");
        atomic_store(&meeting->ready, 1);
    }
    while (!atomic_load(&meeting->ready)) usleep(1000);
    check(init(&comm, 2, meeting->id, rank), "ncclCommInitRank");
    check(stream_create(&stream), "cudaStreamCreate");
    double began_s = now_s(), before_s = began_s;
    for (long call = 0; call < calls || calls == 0; call++) {
        check(all_reduce(data[0], data[1], 16, 7, 0, comm, stream), "ncclAllReduce");
        check(synchronize(stream), "cudaStreamSynchronize");
        usleep(pause_us);
        double after_s = now_s();
        if (call < MOST) took_s[call] = after_s - before_s;
        before_s = after_s;
    }
    if (rank == 0) {
        printf("calls a second: %.3f\n", (double)calls / (now_s() - began_s));
        qsort(took_s, (size_t)calls, sizeof *took_s, by_value);
        printf("a call takes: %.1f\n", took_s[calls / 2] * 1e6);
    }
    check(destroy(comm), "ncclCommDestroy");
    return 0;
}

int main(int count, char **words) {
    if (count != 4 || atol(words[2]) > MOST) return 2;
    meeting =
        mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    long calls = atol(words[2]);
    useconds_t pause_us = (useconds_t)atol(words[3]);
    pid_t other = fork();
    setenv("RANK", other ? "0" : "1", 1);
    int code = run_rank(words[1], other ? 0 : 1, calls, pause_us), status = 0;
    if (!other) return code;
    fflush(stdout);
    waitpid(other, &status, 0);
    return code || status;
}
