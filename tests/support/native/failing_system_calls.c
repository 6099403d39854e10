// Runs a command below a seccomp filter that asks this program about each system call. It lets them
// pass, or makes one fail.
//
//   failing_system_calls CONTROL COMMAND...
//
// CONTROL is a file that the caller maps to say what fails while the command runs: struct control.
// Python's copy of it is tests/support/server_faults.py.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBERS 512

struct control {
    uint32_t counts;          // 1: calls are counted and one of them may fail
    int32_t number;           // of the system call that fails; -1: none
    int32_t error;            // its errno; 0: it does nothing and returns 0
    uint32_t first, times;    // which of them fail, counted from 1
    uint32_t made, failed;    // of that system call
    int32_t listener;         // the child's descriptor of the filter, plus 1
    uint32_t calls[NUMBERS];  // by number, while they are counted
};

// Children and threads must be able to start and end, and a signal to return.
static const int passing[] = {
    SYS_execve,          SYS_exit,        SYS_exit_group,     SYS_rt_sigreturn,
    SYS_restart_syscall, SYS_sched_yield, SYS_set_robust_list};

static int install_filter(void) {
    size_t count = sizeof passing / sizeof *passing, at = 0;
    struct sock_filter code[2 * sizeof passing / sizeof *passing + 2];
    code[at++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, passing[i], 0, 1);
        code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog filter = {.len = (unsigned short)at, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &filter);
}

// What becomes of one system call.
static void decide(struct control *control, const struct seccomp_notif *call,
                   struct seccomp_notif_resp *answer) {
    int number = call->data.nr;
    *answer =
        (struct seccomp_notif_resp){.id = call->id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    if (!control->counts || number < 0 || number >= NUMBERS) return;
    control->calls[number]++;
    if (number != control->number) return;
    uint32_t made = ++control->made;
    if (made < control->first || made - control->first >= control->times) return;
    control->failed++;
    answer->flags = 0;
    answer->error = -control->error;
}

static void supervise(struct control *control, int listener) {
    struct pollfd ready = {.fd = listener, .events = POLLIN};
    for (;;) {
        struct seccomp_notif call = {0};
        struct seccomp_notif_resp answer;
        if (poll(&ready, 1, -1) < 0 && errno != EINTR) return;
        if (ready.revents & POLLHUP) return;
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call)) continue;  // it was interrupted
        decide(control, &call, &answer);
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

static pid_t child;
static void pass_on(int number) { kill(child, number); }

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    int file = open(argv[1], O_RDWR | O_CLOEXEC);
    struct control *control =
        mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (control == MAP_FAILED) return perror(argv[1]), 2;
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int listener = install_filter();
        control->listener = listener + 1;
        // Nobody answers before the parent has the descriptor; until then this only waits.
        if (listener < 0) _exit(3);
        fcntl(listener, F_SETFD, FD_CLOEXEC);
        execvp(argv[2], argv + 2);
        _exit(4);
    }
    signal(SIGTERM, pass_on);
    signal(SIGINT, pass_on);
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0), status;
    while (!__atomic_load_n(&control->listener, __ATOMIC_ACQUIRE))
        if (waitpid(child, &status, WNOHANG)) return 3;
    int listener = (int)syscall(SYS_pidfd_getfd, pidfd, control->listener - 1, 0);
    if (listener < 0) return perror("pidfd_getfd"), kill(child, SIGKILL), 3;
    supervise(control, listener);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
