// The signal handler.
#define _GNU_SOURCE
#include "sigbus_guard.h"

#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "arena.h"

#define PAGE 4096u

static struct sigaction before;
static bool needed;

static bool inside_arena(const char *address) {
    const char *base = arena.base;
    return base && address >= base && address < base + arena_bytes();
}

static void handle(int number, siginfo_t *info, void *context) {
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    if (inside_arena(page) && mmap(page, PAGE, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) {
        __atomic_store_n(&needed, true, __ATOMIC_RELAXED);
        return;
    }
    if (before.sa_flags & SA_SIGINFO) before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    else signal(SIGBUS, SIG_DFL);  // the fault happens again, with the default action
}

void sigbus_guard_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &before);
}

bool sigbus_guard_was_needed(void) { return __atomic_load_n(&needed, __ATOMIC_RELAXED); }
