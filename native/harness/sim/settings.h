// What is simulated: the release, the machine, its links and clocks. From the environment and from
// the scenario file; read once.
//
// Of the file only what concerns the machine is read here; what the program does wrong is for the
// program that runs the scenario. docs/simulation.md has all keys.
#ifndef NCCLSCOPE_SIM_SETTINGS_H
#define NCCLSCOPE_SIM_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_FAULTS = 64 };

struct settings {
    int version;             // 22809
    const char *release;     // "2.28.9"
    int interface_version;   // newest interface that this release knows
    const char *simulation;  // "2.28.9 simulated by ncclscope …"
    const char *problem;     // with the settings; NULL where there is none

    int devices, max_channels;
    bool symmetric;  // collectives are those of symmetric memory
    bool mig;        // every process has an instance of a GPU
    bool tree;       // NCCL_ALGO=Tree: AllReduces use it
    size_t memory_bytes;
    int ranks_per_host;  // 0: all ranks share a host
    double latency_ns, bytes_per_ns;

    struct slow_link {
        bool of_hosts;
        int a, b;
        double factor;
    } slow_links[MAX_FAULTS];
    struct drop {
        int64_t at_ns;  // after the first operation
        double factor;
    } drops[MAX_FAULTS];
    struct gpu_clock {
        int rank;
        int64_t offset_ns;
        double drift_ppm;
    } gpu_clocks[MAX_FAULTS];
    struct absence {
        int rank;
        char communicator[64];
    } absences[MAX_FAULTS];
    int slow_link_count, drop_count, gpu_clock_count, absence_count;
};

const struct settings *settings(void);
// By global ranks, the posed host of a rank.
int settings_host_of(int rank);
// Of the link from one global rank to another, `since_ns` after the first operation.
double settings_latency_ns(int from, int to);
double settings_ns_per_byte(int from, int to, int64_t since_ns);
// Whether a global rank hangs while it makes a communicator of that name.
bool settings_never_joins(int rank, const char *communicator);

#endif
