// Does to the plugin what host processes do: reload it, fork, exec, crash, initialise from many
// threads.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl_abi.h"

static const struct nccl_profiler_v6 *load(void **library) {
    *library = dlopen(getenv("NCCL_PROFILER_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    return dlsym(*library, "ncclProfiler_v6");
}

static void *open_named_comm(const struct nccl_profiler_v6 *plugin, const char *name) {
    void *context = NULL;
    int mask = 0;
    plugin->init(&context, 1, &mask, name, 1, 2, 0, NULL);
    return context;
}

static void *open_comm(const struct nccl_profiler_v6 *plugin) {
    return open_named_comm(plugin, "host");
}

static void groups(const struct nccl_profiler_v6 *plugin, void *context, int many) {
    for (int i = 0; i < many; i++) {
        struct nccl_descr d = {.type = NCCL_GROUP};
        void *handle = (void *)0x5a5a;
        plugin->startEvent(context, &handle, &d);
        plugin->stopEvent(handle);
    }
}

static void *init_and_call(void *argument) {
    const struct nccl_profiler_v6 *plugin = argument;
    void *context = open_comm(plugin);
    groups(plugin, context, 100);
    plugin->finalize(context);
    return NULL;
}

// Names of one letter each, long enough to be recorded in many pieces.
static void *init_with_long_names(void *argument) {
    static int threads;
    char name[1001] = {0};
    memset(name, 'A' + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED), sizeof name - 1);
    const struct nccl_profiler_v6 *plugin = argument;
    for (int i = 0; i < 10; i++) plugin->finalize(open_named_comm(plugin, name));
    return NULL;
}

static volatile sig_atomic_t handled_by;
static void handler(int number) {
    (void)number;
    handled_by = (sig_atomic_t)syscall(SYS_gettid);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    void *library;
    const struct nccl_profiler_v6 *plugin = load(&library);
    if (!plugin) return 1;
    if (strcmp(what, "reload") == 0) {
        for (int round = 0; round < 5; round++) {
            void *context = open_comm(plugin);
            groups(plugin, context, 1);
            plugin->finalize(context);
            dlclose(library);
            plugin = load(&library);
        }
        return 0;
    }
    bool names = strcmp(what, "names") == 0;
    if (names || strcmp(what, "threads") == 0) {
        pthread_t threads[64];
        int many = names ? 8 : 64;
        for (int i = 0; i < many; i++)
            pthread_create(&threads[i], NULL, names ? init_with_long_names : init_and_call,
                           (void *)plugin);
        for (int i = 0; i < many; i++) pthread_join(threads[i], NULL);
        return 0;
    }
    void *context = open_comm(plugin);
    groups(plugin, context, 10);
    if (strcmp(what, "fork") == 0) {
        for (int i = 0; i < 3; i++) {
            pid_t child = fork();
            if (child == 0) {
                groups(plugin, context, 100);
                void *own = open_comm(plugin);
                groups(plugin, own, 100);
                plugin->finalize(own);
                exit(0);
            }
            int status;
            waitpid(child, &status, 0);
            if (status) return 2;
        }
        groups(plugin, context, 10);
        plugin->finalize(context);
    } else if (strcmp(what, "orphan") == 0) {
        if (fork() == 0) {
            for (int fd = 0; fd < 3; fd++) close(fd);
            sleep(5);
            _exit(0);
        }
        kill(getpid(), 0);
        _exit(0);
    } else if (strcmp(what, "vfork") == 0) {
        for (int i = 0; i < 10; i++) {
            pid_t child = vfork();
            if (child == 0) {
                execl("/bin/true", "true", NULL);
                _exit(1);
            }
            int status;
            waitpid(child, &status, 0);
            if (status) return 2;
            groups(plugin, context, 10);
        }
        plugin->finalize(context);
    } else if (strcmp(what, "exec") == 0) {
        execl("/bin/true", "true", NULL);
    } else if (strcmp(what, "segv") == 0) {
        *(volatile int *)8 = 1;
    } else if (strcmp(what, "abort") == 0) {
        abort();
    } else if (strcmp(what, "signals") == 0) {
        signal(SIGUSR1, handler);
        for (int i = 0; i < 200; i++) {
            kill(getpid(), SIGUSR1);
            if (handled_by != getpid()) return 3;
        }
        puts("handled by the main thread");
    } else if (strcmp(what, "closes") == 0) {  // below argv[2], whenever a line comes
        int own[12];
        getchar();
        for (int fd = 3; fd < 64; fd++) close(fd);
        if (chdir(argv[2]) != 0) return 4;
        for (int i = 0; i < 12; i++) {
            char name[] = {(char)('a' + i), 0};
            own[i] = open(name, O_RDWR | O_CREAT, 0600);
            if (write(own[i], "mine", 4) != 4) return 4;
        }
        groups(plugin, context, 2000);
        getchar();
        groups(plugin, context, 10);
        plugin->finalize(context);
        for (int i = 0; i < 12; i++)
            if (write(own[i], "too", 3) != 3) return 5;
    }
    return 0;
}
