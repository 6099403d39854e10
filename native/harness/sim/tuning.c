// Decisions of NCCL, from the recorded jobs (H200, sockets; one host with 2.32).
#include "tuning.h"

#include "reduce.h"
#include "settings.h"

enum { KIB = 1024, MIB = 1024 * 1024, NETWORK_CHANNELS = 2 };

static size_t whole_bytes(const struct transfer_spec *spec, int ranks) {
    bool by_rank = spec->function == ALL_GATHER || spec->function == REDUCE_SCATTER;
    return spec->count * datatype_bytes(spec->type) * (by_rank ? (size_t)ranks : 1);
}

size_t tuning_traffic(const struct transfer_spec *spec, int ranks) {
    return whole_bytes(spec, ranks) * (spec->function == ALL_REDUCE ? 2 : 1);
}

static int limit(int channels) {
    int most = settings()->max_channels;
    return channels < 1 ? 1 : channels < most ? channels : most;
}

// How often data goes round the ring; each turn of the simple protocol is cut in two.
static int ring_steps(const struct transfer_spec *spec, int ranks, int channels, bool simple) {
    int turns = spec->function == ALL_REDUCE ? 2 * (ranks - 1) : ranks - 1;
    if (spec->function == BROADCAST || spec->function == REDUCE) turns = 1;
    else if (simple) turns *= 2;
    size_t once = (size_t)channels * (size_t)ranks * (simple ? 2 * MIB : 16 * KIB);
    size_t loops = (whole_bytes(spec, ranks) + once - 1) / once;
    return turns * (int)(loops ? loops : 1);
}

static struct tuning ring(const struct transfer_spec *spec, int ranks, bool simple, int channels,
                          int warps) {
    bool from_or_to_root = spec->function == BROADCAST || spec->function == REDUCE;
    int simple_chunk = from_or_to_root ? 512 * KIB : 4 * MIB;
    return (struct tuning){.algo = "RING",
                           .proto = simple ? "SIMPLE" : "LL",
                           .channels = channels,
                           .warps = warps,
                           .steps = ring_steps(spec, ranks, channels, simple),
                           .chunk_bytes = simple ? simple_chunk : 32 * KIB};
}

static struct tuning tree(size_t bytes) {
    return (struct tuning){.algo = "TREE",
                           .proto = "SIMPLE",
                           .channels = limit((int)(bytes / (32 * KIB))),
                           .warps = 20,
                           .steps = 2,
                           .chunk_bytes = 512 * KIB};
}

static struct tuning on_one_host(const struct transfer_spec *spec, int ranks) {
    size_t bytes = whole_bytes(spec, ranks);
    bool from_or_to_root = spec->function == BROADCAST || spec->function == REDUCE;
    bool simple = from_or_to_root && bytes > 256 * KIB;
    int channels = limit((int)(bytes / (simple ? 32 * KIB : 8 * KIB)));
    int warps = simple ? 17 : bytes <= 2 * KIB ? 3 : bytes <= 4 * KIB ? 8 : 16;
    return ring(spec, ranks, simple, channels, warps);
}

static struct tuning over_network(const struct transfer_spec *spec, int ranks) {
    size_t bytes = whole_bytes(spec, ranks);
    bool newer = settings()->version >= 23100, lean = settings()->version >= 23000;
    bool gathers = spec->function == ALL_GATHER || spec->function == REDUCE_SCATTER;
    if (bytes <= 8 * KIB) return ring(spec, ranks, false, 1, bytes <= 2 * KIB ? 3 : 8);
    if (bytes <= 64 * KIB && (spec->function == ALL_REDUCE || (gathers && ranks > 2)))
        return ring(spec, ranks, false, limit(NETWORK_CHANNELS), 16);
    int channels = limit(bytes <= 64 * KIB && lean ? 1 : NETWORK_CHANNELS);
    if (bytes <= 64 * KIB && gathers && !newer)
        return (struct tuning){.algo = "PAT",
                               .proto = "SIMPLE",
                               .channels = channels,
                               .warps = 20,
                               .steps = 1,
                               .chunk_bytes = 64 * KIB,
                               .send_first = true};
    return ring(spec, ranks, true, channels, newer ? 17 : 9);
}

// In a group of different collectives over the network, small ones share the last channel.
static struct tuning in_a_group(const struct transfer_spec *spec, int ranks, int place) {
    struct tuning tuning;
    if (spec->function == BROADCAST) {
        tuning = ring(spec, ranks, false, limit(NETWORK_CHANNELS), 16);
    } else if (spec->function == REDUCE || ranks > 2) {
        tuning = ring(spec, ranks, false, 1, 8);
    } else {
        bool tree = spec->function == ALL_REDUCE;
        tuning = (struct tuning){.algo = tree ? "TREE" : "PAT",
                                 .proto = "SIMPLE",
                                 .channels = 1,
                                 .warps = 20,
                                 .steps = 1,
                                 .send_first = true,
                                 .chunk_bytes = tree ? 512 * KIB : 64 * KIB};
        if (!tree && settings()->version < 22700) tuning.shown_channels = NETWORK_CHANNELS;
    }
    if (place > 0 || spec->function != BROADCAST)
        tuning.first_channel = limit(NETWORK_CHANNELS) - tuning.channels;
    return tuning;
}

static struct tuning decide(const struct transfer_spec *spec, int ranks, bool network, bool grouped,
                            int place) {
    if (!network && settings()->tree && spec->function == ALL_REDUCE)
        return tree(whole_bytes(spec, ranks));
    if (!network) return on_one_host(spec, ranks);
    if (grouped && whole_bytes(spec, ranks) <= 64 * KIB) return in_a_group(spec, ranks, place);
    return over_network(spec, ranks);
}

struct tuning tuning_of(const struct transfer_spec *spec, int ranks, bool network, bool grouped,
                        int place) {
    struct tuning tuning = decide(spec, ranks, network, grouped, place);
    if (!tuning.shown_channels) tuning.shown_channels = tuning.channels;
    return tuning;
}

void tuning_share_channels(struct tuning *tunings, const size_t *traffic, int count) {
    size_t whole = 0, before = 0;
    for (int i = 0; i < count; i++) whole += traffic[i];
    size_t channels = (size_t)limit((int)((whole + 16 * KIB - 1) / (16 * KIB)));
    for (int i = 0; i < count && whole; i++) {
        int first = (int)(before * channels / whole);
        before += traffic[i];
        int last = (int)((before * channels - 1) / whole);
        tunings[i].first_channel = first;
        tunings[i].channels = tunings[i].shown_channels = last - first + 1;
    }
}

// ---- messages: rounds are at distances 0, 1, 3, 6, … modulo a power of two, as NCCL orders them
// ----
int tuning_round(int distance, int ranks) {
    int whole = 1, round = 0;
    while (whole < ranks) whole *= 2;
    for (int i = 0; i < whole; i++) {
        int at = (int)((long)i * (i + 1) / 2 % whole);
        if (at == distance) return round;
        if (at < ranks) round++;
    }
    return 0;
}

int tuning_message_channel(int round, bool network) {
    int channels = limit(network ? NETWORK_CHANNELS : MAX_CHANNELS), whole = 1, reversed = 0;
    while (2 * whole <= channels) whole *= 2;
    for (int bit = 1, up = whole / 2; bit < whole; bit *= 2, up /= 2)
        if (round & bit) reversed |= up;
    return reversed;
}
