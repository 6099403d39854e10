// Reads NCCLSCOPE_* and finds the capture directory that all ranks of a job arrive at.
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "identity.h"

struct config config;

#define AS_MODE(number, constant, name) {#name, MODE_##constant, constant##_EVENTS},
static const struct {
    const char *name;
    enum mode mode;
    u32 events;
} modes[] = {MODES(AS_MODE)};
#undef AS_MODE

static void complain(const char *variable, const char *value, const char *instead) {
    if (config.complaint[0]) return;
    snprintf(config.complaint, sizeof config.complaint, "%s=%.60s is not understood; using %s",
             variable, value, instead);
}

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

// Bytes with an optional K, M or G (powers of 1024).
static u64 read_bytes(const char *name, u64 otherwise, const char *described) {
    const char *text = variable(name);
    if (!text) return otherwise;
    char *end;
    double number = strtod(text, &end);
    u64 unit = 1;
    if (*end == 'K' || *end == 'k') unit = 1ull << 10, end++;
    else if (*end == 'M' || *end == 'm') unit = 1ull << 20, end++;
    else if (*end == 'G' || *end == 'g') unit = 1ull << 30, end++;
    if (end == text || *end || !(number >= 0) || number > 1e15) {
        complain(name, text, described);
        return otherwise;
    }
    return (u64)(number * (double)unit);
}

static void read_mode(void) {
    const char *text = variable("NCCLSCOPE_MODE");
    const size_t count = sizeof modes / sizeof *modes;
    size_t chosen = 0;  // profile
    // No `text ? text : "profile"` here: gcc 12 then takes every length for that of "profile".
    if (text) {
        while (chosen < count && strcmp(text, modes[chosen].name) != 0) chosen++;
        if (chosen == count) {
            complain("NCCLSCOPE_MODE", text, "profile");
            chosen = 0;
        }
    }
    config.mode = modes[chosen].mode;
    config.events = modes[chosen].events;
    text = variable("NCCLSCOPE_EVENTS");
    if (text) {
        char *end;
        unsigned long mask = strtoul(text, &end, 0);
        if (*end || mask > NCCL_EVENTS_NEWEST)
            complain("NCCLSCOPE_EVENTS", text, "the mode's events");
        else {
            config.events = (u32)mask;
            config.events_listed = true;
        }
    }
    config.first_events = config.events;
}

static void read_gpu_timing(void) {
    const char *text = variable("NCCLSCOPE_GPU_TIMING");
    config.gpu_timing_asked = GPU_TIMING_AUTO;
    if (text) {
        if (strcmp(text, "0") == 0) text = "off";
        if (strcmp(text, "1") == 0) text = "kernel";
        config.gpu_timing_asked = config_timing_by_name(text);
        if (!config.gpu_timing_asked) {
            complain("NCCLSCOPE_GPU_TIMING", text, "auto");
            config.gpu_timing_asked = GPU_TIMING_AUTO;
        }
    }
    text = variable("NCCLSCOPE_GRAPH_MARKERS");
    config.graph_markers = !(text && strcmp(text, "0") == 0);
}

const char *config_mode_name(void) { return modes[config.mode - 1].name; }

u32 config_mode_events(enum mode mode) { return modes[mode - 1].events; }

#define AS_NAME(number, constant, name) [number] = #name,
static const char *const timing_names[] = {GPU_TIMINGS(AS_NAME)};
#undef AS_NAME

const char *config_timing_name(enum gpu_timing timing) { return timing_names[timing]; }

enum gpu_timing config_timing_by_name(const char *name) {
    for (unsigned i = GPU_TIMING_KERNEL; i <= GPU_TIMING_AUTO; i++)
        if (strcmp(name, timing_names[i]) == 0) return (enum gpu_timing)i;
    return 0;
}

enum mode config_mode_by_name(const char *name) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(name, modes[i].name) == 0) return modes[i].mode;
    return 0;
}

// With less, threads would not even get a chunk each: nothing would be on record.
static u64 at_least(const char *name, u64 bytes, u64 least, const char *described) {
    if (!bytes || bytes >= least) return bytes;
    if (!config.complaint[0])
        snprintf(config.complaint, sizeof config.complaint, "%s=%.60s is too small; using %s", name,
                 variable(name), described);
    return least;
}

// A name that all ranks find without talking: the job's id, else the moment its launcher started.
static void default_capture_name(char *out, size_t size) {
    static const char *const job_variables[] = {"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID",
                                                "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", NULL};
    for (const char *const *name = job_variables; *name; name++) {
        const char *id = variable(*name);
        if (!id || strcmp(id, "none") == 0) continue;  // torchrun's run id unless the user gave one
        snprintf(out, size, "ncclscope-%.100s", id);
        for (char *c = out; *c; c++)
            if (*c == '/') *c = '_';
        return;
    }
    time_t started = identity_process_started(identity_global_rank()[0] ? getppid() : getpid());
    struct tm when = {.tm_mday = 1};
    localtime_r(&started, &when);
    strftime(out, size, "ncclscope-%Y%m%d-%H%M%S", &when);
}

// %h host, %p process id, %r global rank, %% a percent sign.
static void expand(const char *pattern, char *out, size_t size) {
    size_t used = 0;
    for (const char *c = pattern; *c && used + 1 < size; c++) {
        char text[300] = {*c, 0};
        if (*c == '%' && c[1]) {
            c++;
            if (*c == 'h') identity_host(text, sizeof text);
            else if (*c == 'p') snprintf(text, sizeof text, "%d", (int)getpid());
            else if (*c == 'r') snprintf(text, sizeof text, "%s", identity_global_rank());
            else if (*c != '%') snprintf(text, sizeof text, "%%%c", *c);
        }
        size_t length = strlen(text);
        if (length > size - 1 - used) length = size - 1 - used;
        memcpy(out + used, text, length);
        used += length;
    }
    out[used] = 0;
}

static void read_capture_dir(void) {
    char name[PATH_MAX];
    const char *pattern = variable("NCCLSCOPE_DIR");
    if (pattern) expand(pattern, name, sizeof name);
    else default_capture_name(name, sizeof name);
    if (name[0] == '/') {
        snprintf(config.capture_dir, sizeof config.capture_dir, "%s", name);
        return;
    }
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) snprintf(here, sizeof here, "/tmp");
    if ((size_t)snprintf(config.capture_dir, sizeof config.capture_dir, "%s/%s", here, name) >=
        sizeof config.capture_dir)
        complain("NCCLSCOPE_DIR", name, "a shortened path");
}

static void read_torch(void) {
    static const char *const levels[] = {
        [TORCH_AUTO] = "auto",
        [TORCH_OFF] = "off",
        [TORCH_STEPS] = "steps",
        [TORCH_MODULES] = "modules",
    };
    const char *text = variable("NCCLSCOPE_TORCH");
    if (!text) return;
    for (unsigned level = 0; level < sizeof levels / sizeof *levels; level++)
        if (strcmp(text, levels[level]) == 0) {
            config.torch = (enum torch_level)level;
            return;
        }
    complain("NCCLSCOPE_TORCH", text, "auto");
}

void config_read(void) {
    memset(&config, 0, sizeof config);
    const char *disable = variable("NCCLSCOPE_DISABLE");
    config.disabled = disable && strcmp(disable, "0") != 0;
    read_mode();
    read_gpu_timing();
    config.arena_bytes = read_bytes("NCCLSCOPE_ARENA", 0, "the default");
    config.arena_bytes = at_least("NCCLSCOPE_ARENA", config.arena_bytes, 512u << 10, "512K");
    config.ring_bytes = read_bytes("NCCLSCOPE_RING", 0, "no ring");
    config.ring_bytes = at_least("NCCLSCOPE_RING", config.ring_bytes, 1u << 20, "1M");
    if (config.mode == MODE_PROFILE) config.ring_bytes = 0;  // there are no events to keep
    config.disk_limit_bytes = read_bytes("NCCLSCOPE_DISK_LIMIT", 4ull << 30, "4G");
    config.exit_wait_ns = 2000000000u;
    const char *wait = variable("NCCLSCOPE_EXIT_WAIT");
    if (wait) {
        char *end;
        double seconds = strtod(wait, &end);
        if (*end || !(seconds >= 0) || seconds > 3600)
            complain("NCCLSCOPE_EXIT_WAIT", wait, "2 seconds");
        else config.exit_wait_ns = (u64)(seconds * 1e9);
    }
    const char *ranges = variable("NCCLSCOPE_RANGES");
    config.ranges = !(ranges && strcmp(ranges, "off") == 0);
    read_torch();
    const char *chain = variable("NCCLSCOPE_CHAIN");
    snprintf(config.chain, sizeof config.chain, "%s", chain ? chain : "");
    read_capture_dir();
}
