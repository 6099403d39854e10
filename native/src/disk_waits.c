// Times calls, and asks the kernel whether the thread went to sleep in them, and for how long.
#define _GNU_SOURCE
#include "disk_waits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "clock.h"

#define SLOW_NS 50000000u
#define STALL_NS 1000000000u  // slow by itself: a disk that hangs now and then
#define AGAIN_NS 2000000000u  // two heartbeats: each of them writes

static bool slow;
static u64 last_ended_ns;  // of the last call that seemed slow; 0: none did

// A thread that waits gives its CPU away; one whose time is up has it taken.
static long times_blocked(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : -1;
}

// How long this thread has run, or was ready to run and had no CPU; 0: not known. A thread that
// sleeps for a moment in a call and then waits for a CPU is told from one that waits for the disk
// by this alone.
static u64 awake_ns(void) {
    char text[64];
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0) return 0;
    text[length] = 0;
    char *rest;
    u64 ran = strtoull(text, &rest, 10);
    return ran + strtoull(rest, NULL, 10);
}

struct disk_wait disk_wait_begin(void) {
    if (slow) return (struct disk_wait){0};  // that is never taken back
    return (struct disk_wait){clock_monotonic_ns(), awake_ns(), times_blocked()};
}

void disk_wait_end(struct disk_wait wait) {
    if (slow) return;
    int error = errno;  // of the call, for whoever made it
    u64 ended = clock_monotonic_ns(), took = ended - wait.began_ns;
    if (took > SLOW_NS && (wait.blocked < 0 || times_blocked() != wait.blocked)) {
        u64 now = wait.awake_ns ? awake_ns() : 0;
        u64 awake = now > wait.awake_ns ? now - wait.awake_ns : 0;
        disk_waited(wait.began_ns, ended, took > awake ? took - awake : 0);
    }
    errno = error;
}

void disk_waited(u64 began_ns, u64 ended_ns, u64 waited_ns) {
    if (waited_ns <= SLOW_NS) return;
    // A call that encloses the last one, as making a file does writing its header, is the same
    // wait.
    bool again = last_ended_ns && began_ns >= last_ended_ns && began_ns - last_ended_ns < AGAIN_NS;
    if (again || waited_ns >= STALL_NS) slow = true;
    last_ended_ns = ended_ns;
}

bool disk_is_slow(void) { return slow; }
