// Reads identity from the kernel, the launchers' variables and, where CUDA is loaded already, the
// driver. src/ncclscope/launchers.py reads the same variables; a test compares both lists.
#define _GNU_SOURCE
#include "identity.h"

#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cuda_driver.h"
#include "version.h"

extern char **environ;

static ssize_t read_file(const char *path, char *out, size_t size) {
    out[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t length = read(fd, out, size - 1);
    close(fd);
    if (length < 0) length = 0;
    out[length] = 0;
    return length;
}

void identity_host(char *out, size_t size) {
    if (gethostname(out, size) != 0 || !out[0]) snprintf(out, size, "unknown");
    out[size - 1] = 0;
}

const char *identity_global_rank(void) {
    static const char *const names[] = {"RANK",      "SLURM_PROCID", "OMPI_COMM_WORLD_RANK",
                                        "PMIX_RANK", "PMI_RANK",     NULL};
    for (const char *const *name = names; *name; name++) {
        const char *value = getenv(*name);
        if (value && *value) return value;
    }
    return "";
}

u64 identity_start_ticks(pid_t pid) {
    char path[64], stat[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_file(path, stat, sizeof stat) <= 0) return 0;
    char *field = strrchr(stat, ')');  // the command name may hold spaces and brackets
    for (int number = 2; field && number < 22; number++) field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

// From whole numbers that do not change: every process of a job must arrive at the same second.
time_t identity_process_started(pid_t pid) {
    char stat[8192];
    u64 ticks = identity_start_ticks(pid);
    long per_second = sysconf(_SC_CLK_TCK);
    int fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    u64 booted = 0;
    // The line may lie behind one per processor and a long one about interrupts.
    char line[32] = "";
    size_t length = 0;
    for (ssize_t got; fd >= 0 && !booted && (got = read(fd, stat, sizeof stat)) > 0;)
        for (ssize_t i = 0; i < got && !booted; i++) {
            if (stat[i] == '\n') {
                if (strncmp(line, "btime ", 6) == 0) booted = strtoull(line + 6, NULL, 10);
                length = 0;
            } else if (length < sizeof line - 1) {
                line[length++] = stat[i];
                line[length] = 0;
            }
        }
    if (fd >= 0) close(fd);
    if (ticks == 0 || per_second <= 0 || booted == 0) return time(NULL);
    return (time_t)(booted + ticks / (u64)per_second);
}

// ---- key/value text ----
struct pairs {
    char *out;
    size_t size, used;
};

static void put_bytes(struct pairs *pairs, const char *key, const char *value, size_t length) {
    size_t key_length = strlen(key) + 1;
    if (pairs->used + key_length + 2 > pairs->size) return;
    size_t room = pairs->size - pairs->used - key_length - 1;
    if (length > room) length = room;
    memcpy(pairs->out + pairs->used, key, key_length);
    memcpy(pairs->out + pairs->used + key_length, value, length);
    pairs->used += key_length + length;
    pairs->out[pairs->used++] = 0;
}

static void put(struct pairs *pairs, const char *key, const char *value) {
    put_bytes(pairs, key, value, strlen(value));
}

static void put_number(struct pairs *pairs, const char *key, u64 number) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    put(pairs, key, text);
}

static void put_line_of(struct pairs *pairs, const char *key, const char *path) {
    char text[256];
    if (read_file(path, text, sizeof text) <= 0) return;
    text[strcspn(text, "\n")] = 0;
    put(pairs, key, text);
}

static bool names_a_secret(const char *text, size_t length) {
    static const char *const words[] = {"token",  "secret",  "password", "passwd",
                                        "apikey", "api-key", "api_key",  "credential",
                                        "auth",   "private", NULL};
    char lower[128];
    if (length >= sizeof lower) length = sizeof lower - 1;
    for (size_t i = 0; i < length; i++) lower[i] = (char)tolower((unsigned char)text[i]);
    lower[length] = 0;
    for (const char *const *word = words; *word; word++)
        if (strstr(lower, *word)) return true;
    return false;
}

// The command line, arguments separated by spaces, values of options and assignments that name a
// secret replaced.
static void put_command_line(struct pairs *pairs) {
    char raw[4096], clean[4096];
    ssize_t length = read_file("/proc/self/cmdline", raw, sizeof raw);
    size_t used = 0;
    bool hide_next = false;
    for (char *argument = raw; length > 0 && argument < raw + length;
         argument += strlen(argument) + 1) {
        char shown[4096];
        const char *equals = strchr(argument, '=');
        size_t name_length = equals ? (size_t)(equals - argument) : strlen(argument);
        bool secret = (equals || argument[0] == '-') && names_a_secret(argument, name_length);
        if (hide_next && argument[0] != '-') snprintf(shown, sizeof shown, "***");
        else if (secret && equals)
            snprintf(shown, sizeof shown, "%.*s=***", (int)name_length, argument);
        else snprintf(shown, sizeof shown, "%s", argument);
        hide_next = secret && !equals;
        int more = snprintf(clean + used, sizeof clean - used, used ? " %s" : "%s", shown);
        if (more < 0 || (size_t)more >= sizeof clean - used) break;
        used += (size_t)more;
    }
    put_bytes(pairs, "command", clean, used);
}

static void put_variables(struct pairs *pairs) {
    static const char *const names[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_RANK",
                                        "LOCAL_WORLD_SIZE",
                                        "GROUP_RANK",
                                        "NODE_RANK",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_NTASKS",
                                        "SLURM_NPROCS",
                                        "SLURM_NODEID",
                                        "SLURM_RESTART_COUNT",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_RANK",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "OMPI_MCA_ess_base_jobid",
                                        "MPI_LOCALRANKID",
                                        "MPI_LOCALNRANKS",
                                        "PMIX_RANK",
                                        "PMIX_NAMESPACE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "POD_NAME",
                                        "POD_NAMESPACE",
                                        "POD_UID",
                                        "JOB_COMPLETION_INDEX",
                                        "CUDA_VISIBLE_DEVICES",
                                        NULL};
    char key[80];
    for (const char *const *name = names; *name; name++) {
        const char *value = getenv(*name);
        if (!value) continue;
        snprintf(key, sizeof key, "env.%s", *name);
        put(pairs, key, value);
    }
    for (char **entry = environ; entry && *entry;
         entry++) {  // NCCL's own settings explain what it does
        const char *equals = strchr(*entry, '=');
        if (strncmp(*entry, "NCCL", 4) != 0 || !equals || equals - *entry > 70) continue;
        bool secret = names_a_secret(*entry, (size_t)(equals - *entry));
        snprintf(key, sizeof key, "env.%.*s", (int)(equals - *entry), *entry);
        put(pairs, key, secret ? "***" : equals + 1);
    }
}

// NCCL's release, from the very library that called; its function only stores a constant.
static void put_nccl(struct pairs *pairs, const void *nccl_address) {
    Dl_info info;
    if (!nccl_address || !dladdr(nccl_address, &info) || !info.dli_fname) return;
    put(pairs, "nccl_library", info.dli_fname);
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return;
    int (*get_version)(int *) = NULL;
    *(void **)&get_version = dlsym(library, "ncclGetVersion");
    int version = 0;
    if (get_version && get_version(&version) == 0) put_number(pairs, "nccl_version", (u64)version);
    if (dlsym(library, "ncclscopeSimulation")) put_number(pairs, "simulation", 1);
    dlclose(library);
}

static void put_namespace(struct pairs *pairs, const char *key, const char *path) {
    struct stat info;
    if (stat(path, &info) == 0) put_number(pairs, key, (u64)info.st_ino);
}

size_t identity_write(char *out, size_t size, const struct identity_facts *facts) {
    struct pairs pairs = {out, size, 0};
    char text[PATH_MAX];
    struct utsname kernel;
    put(&pairs, "plugin_version", NCCLSCOPE_VERSION);
    put(&pairs, "mode", facts->mode);
    put(&pairs, "gpu_timing.asked", facts->gpu_timing_asked);
    put(&pairs, "gpu_timing.in_force", facts->gpu_timing_in_force);
    put(&pairs, "gpu_timing.reason", facts->gpu_timing_reason);
    put(&pairs, "graph_markers", facts->graph_markers);
    identity_host(text, sizeof text);
    put(&pairs, "host", text);
    put_number(&pairs, "pid", (u64)getpid());
    put_number(&pairs, "start_ticks", identity_start_ticks(getpid()));
    put_number(&pairs, "uid", (u64)getuid());
    put_line_of(&pairs, "boot_id", "/proc/sys/kernel/random/boot_id");
    put_namespace(&pairs, "pid_namespace", "/proc/self/ns/pid");
    put_namespace(&pairs, "time_namespace", "/proc/self/ns/time");
    if (uname(&kernel) == 0) {
        put(&pairs, "kernel", kernel.release);
        put(&pairs, "machine", kernel.machine);
    }
    put(&pairs, "capture", facts->capture_dir);
    put(&pairs, "folder", facts->process_folder);
    put(&pairs, "arena", facts->arena_path);
    put_nccl(&pairs, facts->nccl_address);
    put_command_line(&pairs);
    put_variables(&pairs);
    return pairs.used;
}

// ---- GPU ----
bool identity_current_gpu(struct gpu *gpu) {
    memset(gpu, 0, sizeof *gpu);
    int device = 0;
    return !cuda_missing_for_identity() && cuda.context_device(&device) == 0 &&
           cuda.device_uuid(gpu->uuid, device) == 0 &&
           cuda.device_bus_id(gpu->bus_id, (int)sizeof gpu->bus_id, device) == 0;
}
