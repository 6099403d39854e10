// C unit tests of the recorder's parts. Each TEST runs in a process of its own (run.c), because the
// recorder's state is static.
#ifndef NCCLSCOPE_TEST_H
#define NCCLSCOPE_TEST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "arena.h"
#include "config.h"
#include "stream.h"
#include "tally.h"
#include "writer.h"

#define TEST(name)                                                 \
    __attribute__((visibility("default"))) void test_##name(void); \
    void test_##name(void)

// Both end the process at the first failure, and say where.
#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            _exit(1);                                                                     \
        }                                                                                 \
    } while (0)
#define CHECK_EQUAL(given, expected)                                                             \
    do {                                                                                         \
        unsigned long long given_ = (unsigned long long)(given);                                 \
        unsigned long long expected_ = (unsigned long long)(expected);                           \
        if (given_ != expected_) {                                                               \
            fprintf(stderr, "%s:%d: %s is %llu, not %llu\n", __FILE__, __LINE__, #given, given_, \
                    expected_);                                                                  \
            _exit(1);                                                                            \
        }                                                                                        \
    } while (0)

enum { NONCE = 0x8123 };

// A recorder without NCCL, helper thread and files, with an arena of about so many chunks.
static inline void start_recorder(unsigned chunks) {
    char bytes[32], name[64];
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)chunks * CHUNK_BYTES);
    setenv("NCCLSCOPE_ARENA", bytes, 1);
    setenv("NCCLSCOPE_MODE", "full", 1);
    config_read();
    snprintf(name, sizeof name, "unit-test.%d", (int)getpid());
    CHECK(arena_create(name));
    if (arena.fd >= 0) unlink(arena.path);  // whatever happens, nothing stays behind
    clock_choose();
    tally_setup();
    callback_state.fast_events = NCCL_EVENTS_NEWEST;
    writer_locate();
    stream_setup_all(NONCE);
}

static inline u64 counter_value(enum counter counter, u64 type) {
    return *arena_counter(counter, type ? NCCL_NUMBER(type) : 0);
}

#endif
