// Reads the environment and the scenario file.
#define _GNU_SOURCE
#include "settings.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "version.h"

static struct settings chosen = {
    .devices = 8,
    .max_channels = 2,
    .memory_bytes = (size_t)16 << 30,
    .latency_ns = 10e3,
    .bytes_per_ns = 2,
};
static char problem[512], simulation[128];

static void complain(const char *what, const char *about) {
    if (chosen.problem) return;
    snprintf(problem, sizeof problem, "simulated NCCL: %s: %s", what, about);
    chosen.problem = problem;
}

// ---- releases ----
static const struct {
    const char *name, *release;
    int version, interface_version;
} releases[] = {
    {"2.26", "2.26.5", 22605, 3}, {"2.27", "2.27.7", 22707, 4}, {"2.28", "2.28.9", 22809, 5},
    {"2.30", "2.30.7", 23007, 6}, {"2.31", "2.31.2", 23102, 7}, {"2.32", "2.32.3", 23203, 7},
};

static void choose_release(const char *name) {
    for (size_t i = 0; i < sizeof releases / sizeof *releases; i++) {
        if (strcmp(name, releases[i].name) != 0 && strcmp(name, releases[i].release) != 0) continue;
        chosen.release = releases[i].release;
        chosen.version = releases[i].version;
        chosen.interface_version = releases[i].interface_version;
        return;
    }
    complain("releases are 2.26, 2.27, 2.28, 2.30, 2.31 and 2.32, not", name);
}

// ---- the scenario ----
// The value of `name=…` among a line's words, else its word at that place if that has no name; NULL
// where it is absent.
static const char *value_of(const char *words, const char *name, int place) {
    size_t length = strlen(name);
    const char *unnamed = NULL;
    for (const char *at = words + strspn(words, " \t"); *at; place--) {
        size_t end = strcspn(at, " \t");
        if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
        if (place == 0 && !memchr(at, '=', end)) unnamed = at;
        at += end + strspn(at + end, " \t");
    }
    return unnamed;
}

static double word(const char *words, const char *name, int place, double otherwise) {
    const char *value = value_of(words, name, place);
    return value ? strtod(value, NULL) : otherwise;
}

// `name=a,b`.
static bool pair(const char *words, const char *name, int place, int *a, int *b) {
    const char *value = value_of(words, name, place);
    return value && sscanf(value, "%d,%d", a, b) == 2;
}

static void add_slow_link(const char *words) {
    if (chosen.slow_link_count == MAX_FAULTS) return;
    struct slow_link *link = &chosen.slow_links[chosen.slow_link_count];
    link->factor = word(words, "factor", 2, 10);
    link->of_hosts = pair(words, "hosts", 1, &link->a, &link->b);
    if (!link->of_hosts && !pair(words, "ranks", 0, &link->a, &link->b)) {
        complain("slow_link needs ranks=A,B or hosts=A,B", words);
        return;
    }
    chosen.slow_link_count++;
}

static void add_absence(const char *words) {
    const char *name = value_of(words, "communicator", 1);
    if (chosen.absence_count == MAX_FAULTS || !name) return;
    struct absence *absence = &chosen.absences[chosen.absence_count++];
    absence->rank = (int)word(words, "rank", 0, -1);
    snprintf(absence->communicator, sizeof absence->communicator, "%.*s", (int)strcspn(name, " \t"),
             name);
}

static void take(const char *key, const char *value) {
    double number = strtod(value, NULL);
    if (strcmp(key, "release") == 0) choose_release(value);
    else if (strcmp(key, "ranks_per_host") == 0) chosen.ranks_per_host = (int)number;
    else if (strcmp(key, "channels") == 0) chosen.max_channels = (int)number;
    else if (strcmp(key, "latency_us") == 0) chosen.latency_ns = number * 1e3;
    else if (strcmp(key, "bandwidth_gb_s") == 0) chosen.bytes_per_ns = number;
    else if (strcmp(key, "slow_link") == 0) add_slow_link(value);
    else if (strcmp(key, "never_joins") == 0) add_absence(value);
    else if (strcmp(key, "bandwidth_drop") == 0 && chosen.drop_count < MAX_FAULTS)
        chosen.drops[chosen.drop_count++] =
            (struct drop){(int64_t)(word(value, "at_ms", 0, 0) * 1e6), word(value, "factor", 1, 4)};
    else if (strcmp(key, "gpu_clock") == 0 && chosen.gpu_clock_count < MAX_FAULTS)
        chosen.gpu_clocks[chosen.gpu_clock_count++] = (struct gpu_clock){
            (int)word(value, "rank", 0, 0), (int64_t)(word(value, "offset_ms", 1, 0) * 1e6),
            word(value, "drift_ppm", 2, 0)};
}

static void read_scenario(const char *path) {
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    if (!file) {
        complain(strerror(errno), path);
        return;
    }
    while (getline(&line, &room, file) > 0) {
        line[strcspn(line, "#\r\n")] = 0;
        char *equals = strchr(line, '=');
        if (!equals) continue;
        char *key = line + strspn(line, " \t"), *value = equals + 1;
        char *end = equals;
        while (end > key && strchr(" \t", end[-1])) end--;
        *end = 0;
        value += strspn(value, " \t");
        for (char *last = value + strlen(value); last > value && strchr(" \t", last[-1]);)
            *--last = 0;
        take(key, value);
    }
    free(line);
    fclose(file);
}

static void number_from(const char *variable, double *value) {
    const char *text = getenv(variable);
    if (text && *text) *value = strtod(text, NULL);
}

static bool is_set(const char *variable, const char *value) {
    const char *text = getenv(variable);
    return text && strcmp(text, value) == 0;
}

static void read_all(void) {
    const char *scenario = getenv("NCCLSCOPE_SIM_SCENARIO"),
               *release = getenv("NCCLSCOPE_SIM_RELEASE");
    choose_release("2.28");
    if (scenario && *scenario) read_scenario(scenario);
    if (release && *release) choose_release(release);
    double devices = chosen.devices, channels = chosen.max_channels,
           memory = (double)chosen.memory_bytes;
    number_from("NCCLSCOPE_SIM_DEVICES", &devices);
    number_from("NCCLSCOPE_SIM_MEMORY", &memory);
    number_from("NCCL_MAX_NCHANNELS", &channels);
    chosen.symmetric = is_set("NCCLSCOPE_SIM_SYMMETRIC", "1");
    chosen.mig = is_set("NCCLSCOPE_SIM_MIG", "1");
    chosen.tree = is_set("NCCL_ALGO", "Tree");
    chosen.devices = devices < 0 ? 0 : (int)devices;
    chosen.memory_bytes = (size_t)memory;
    chosen.max_channels = channels < 1 ? 1 : channels > 64 ? 64 : (int)channels;
    if (!(chosen.bytes_per_ns > 0)) complain("bandwidth_gb_s must be above 0", "");
    snprintf(simulation, sizeof simulation,
             "NCCL %s simulated by ncclscope " NCCLSCOPE_VERSION ": nothing of it is measured",
             chosen.release);
    chosen.simulation = simulation;
}

const struct settings *settings(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_all);
    return &chosen;
}

// ---- links ----
int settings_host_of(int rank) {
    return chosen.ranks_per_host > 0 ? rank / chosen.ranks_per_host : 0;
}

static double slowness(int from, int to) {
    double factor = 1;
    for (int i = 0; i < chosen.slow_link_count; i++) {
        const struct slow_link *link = &chosen.slow_links[i];
        int a = link->of_hosts ? settings_host_of(from) : from;
        int b = link->of_hosts ? settings_host_of(to) : to;
        if ((a == link->a && b == link->b) || (a == link->b && b == link->a))
            factor *= link->factor;
    }
    return factor;
}

bool settings_never_joins(int rank, const char *communicator) {
    for (int i = 0; communicator && i < chosen.absence_count; i++)
        if (chosen.absences[i].rank == rank &&
            strcmp(chosen.absences[i].communicator, communicator) == 0)
            return true;
    return false;
}

double settings_latency_ns(int from, int to) { return chosen.latency_ns * slowness(from, to); }

double settings_ns_per_byte(int from, int to, int64_t since_ns) {
    double ns = slowness(from, to) / chosen.bytes_per_ns;
    for (int i = 0; i < chosen.drop_count; i++)
        if (since_ns >= chosen.drops[i].at_ns) ns *= chosen.drops[i].factor;
    return ns;
}
