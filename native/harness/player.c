// ncclscope-player: plays NCCL's part on machines without a GPU. Everything it makes is a replay or
// synthetic.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/nccl_abi.h"
#include "host.h"
#include "layout.h"
#include "load.h"
#include "play.h"
#include "ranges.h"

static const char usage[] =
    "ncclscope-player: calls a profiler plugin as NCCL would (no GPU, no NCCL)\n"
    "\n"
    "  play TRANSCRIPT   the callbacks of a recorded process (JSON lines, not compressed)\n"
    "      --realtime          keep the recorded distances in time\n"
    "      --times N           plays it N times\n"
    "  load              synthetic collectives, as NCCL reports a ring AllReduce over a network\n"
    "      --version V         interface version 1 to 7 (7)\n"
    "      --threads T         calling at the same time (1)\n"
    "      --generations G     each ended and replaced G times (1) --pause MS before (0)\n"
    "      --collectives N     per thread (1000)\n"
    "      --channels C        (16) --steps S of each of the 2 x C proxy ops (8)\n"
    "      --comms M           communicators, used in turn (1)\n"
    "      --rate R            callbacks a second and thread (no limit)\n"
    "      --stalls            say how long the longest callbacks took, and why\n"
    "      --oracle FILE       self-checking events instead; what is certain is written to FILE\n"
    "  fuzz              hostile handles and contexts\n"
    "      --version V --calls N (1000000) --seed S (1)\n"
    "  ranges            a program's NVTX ranges, well used and not, between NCCL's callbacks\n"
    "      --version V --threads T (4) --calls N (1000000) --seed S (1)\n"
    "      --cost              ns of a push with its pop instead\n"
    "  layout            the capture format, NCCL's interface and the compiled loops as JSON\n"
    "  buckets           histogram buckets of the times in ns on standard input\n"
    "\n"
    "  --plugin PATH           (NCCL_PROFILER_PLUGIN)\n"
    "  --end finalize|exit|kill   finalize; exit without it; SIGKILL after the last call "
    "(finalize)\n"
    "  --die-at N              SIGKILL right after the Nth callback\n";

struct arguments {
    int count;
    char **values;
};

// The value after an option, NULL where it is absent.
static const char *option(const struct arguments *arguments, const char *name) {
    for (int i = 2; i + 1 < arguments->count; i++)
        if (strcmp(arguments->values[i], name) == 0) return arguments->values[i + 1];
    return NULL;
}

static bool flag(const struct arguments *arguments, const char *name) {
    for (int i = 2; i < arguments->count; i++)
        if (strcmp(arguments->values[i], name) == 0) return true;
    return false;
}

static uint64_t number(const struct arguments *arguments, const char *name, uint64_t otherwise) {
    const char *text = option(arguments, name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static int end_of(const struct arguments *arguments) {
    const char *text = option(arguments, "--end");
    if (!text || strcmp(text, "finalize") == 0) return END_FINALIZE;
    if (strcmp(text, "exit") == 0) return END_EXIT;
    if (strcmp(text, "kill") == 0) return END_KILL;
    fputs(usage, stderr);
    exit(2);
}

static const char *plugin_of(const struct arguments *arguments) {
    const char *plugin = option(arguments, "--plugin");
    if (!plugin) plugin = getenv("NCCL_PROFILER_PLUGIN");
    if (plugin) return plugin;
    fputs("no plugin: give --plugin PATH or set NCCL_PROFILER_PLUGIN\n", stderr);
    exit(2);
}

static int version_of(const struct arguments *arguments) {
    int version = (int)number(arguments, "--version", NCCL_NEWEST_INTERFACE);
    if (version >= 1 && version <= NCCL_NEWEST_INTERFACE) return version;
    fprintf(stderr, "interface versions are 1 to %d\n", NCCL_NEWEST_INTERFACE);
    exit(2);
}

int main(int count, char **values) {
    struct arguments arguments = {count, values};
    const char *verb = count > 1 ? values[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(verb, "layout") == 0) return layout_print();
    if (strcmp(verb, "buckets") == 0) return layout_print_buckets();
    if (strcmp(verb, "play") == 0 && count > 2)
        return play(&(struct play_options){.plugin = plugin_of(&arguments),
                                           .transcript = values[2],
                                           .realtime = flag(&arguments, "--realtime"),
                                           .end = end_of(&arguments),
                                           .die_at = number(&arguments, "--die-at", 0),
                                           .times = number(&arguments, "--times", 1)});
    if (strcmp(verb, "load") == 0)
        return load(
            &(struct load_options){.plugin = plugin_of(&arguments),
                                   .version = version_of(&arguments),
                                   .threads = (int)number(&arguments, "--threads", 1),
                                   .collectives = number(&arguments, "--collectives", 1000),
                                   .channels = (int)number(&arguments, "--channels", 16),
                                   .steps = (int)number(&arguments, "--steps", 8),
                                   .rate = (double)number(&arguments, "--rate", 0),
                                   .comms = (int)number(&arguments, "--comms", 1),
                                   .generations = (int)number(&arguments, "--generations", 1),
                                   .pause_ms = (long)number(&arguments, "--pause", 0),
                                   .die_at = number(&arguments, "--die-at", 0),
                                   .end = end_of(&arguments),
                                   .stalls = flag(&arguments, "--stalls"),
                                   .oracle = option(&arguments, "--oracle")});
    if (strcmp(verb, "fuzz") == 0)
        return fuzz(&(struct fuzz_options){.plugin = plugin_of(&arguments),
                                           .version = version_of(&arguments),
                                           .calls = number(&arguments, "--calls", 1000000),
                                           .seed = number(&arguments, "--seed", 1)});
    if (strcmp(verb, "ranges") == 0) {
        struct ranges_options chosen = {.plugin = plugin_of(&arguments),
                                        .version = version_of(&arguments),
                                        .threads = (int)number(&arguments, "--threads", 4),
                                        .calls = number(&arguments, "--calls", 1000000),
                                        .seed = number(&arguments, "--seed", 1)};
        return flag(&arguments, "--cost") ? ranges_cost(&chosen) : ranges_fuzz(&chosen);
    }
    fputs(usage, stderr);
    return 2;
}
