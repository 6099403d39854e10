// Files that are cut, or taken away by a server of files, while they are mapped. Reading what is
// gone raises SIGBUS, which would end the program without a word: it reads zeros instead, and the
// pages are counted.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arrays.h"

static i64 *lost;  // of this process and of those that it forks
static struct sigaction before;
static uintptr_t page_bytes;

static void handle(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(page_bytes - 1));
    if (info->si_code == BUS_ADRERR && mmap(page, page_bytes, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page)
        __atomic_fetch_add(lost, 1, __ATOMIC_RELAXED);
    else sigaction(SIGBUS, &before, NULL);  // the fault happens again
}

EXPORT int ncclscope_guard_mapped_files(void) {
    if (lost) return 1;
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *shared =
        mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 0;
    lost = shared;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &before) == 0;
}

EXPORT i64 ncclscope_pages_lost(void) { return lost ? __atomic_load_n(lost, __ATOMIC_RELAXED) : 0; }
