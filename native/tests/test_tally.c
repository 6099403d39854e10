// Call counts: keys, tables, folding and totals.
#include "tally.h"

#include "test.h"
#include "totals.h"

static struct tally_key key_of(u64 count) {
    return tally_key(3, LEVEL_WORK, 4, 5, 6, 7, TALLY_NUMBERS, count);
}

static struct {
    u64 keys, folded, calls, count_sum;
} sums;

static void add_up(struct tally_key key, u64 calls, u64 count_sum) {
    sums.keys++;
    sums.folded += tally_is_folded(key);
    sums.calls += calls;
    sums.count_sum += count_sum;
}

TEST(a_key_is_the_word_of_its_slot) {
    union slot slot = {.tally = {.comm = 3, .level = LEVEL_WORK, .func = 4, .dtype = 5}};
    slot.tally.algo = 6, slot.tally.proto = 7, slot.tally.bits = TALLY_NUMBERS;
    struct tally_key key = key_of(9);
    CHECK_EQUAL(slot.words[TALLY_WORD], key.word);
    CHECK_EQUAL(tally_level(key), LEVEL_WORK);
    CHECK_EQUAL(tally_func(key), 4);
    CHECK_EQUAL(tally_dtype(key), 5);
    CHECK_EQUAL(tally_algo(key), 6);
    CHECK_EQUAL(tally_proto(key), 7);
    CHECK(!tally_is_folded(key));
}

TEST(a_folded_key_has_the_power_of_two_below) {
    CHECK_EQUAL(tally_folded(key_of(0)).count, 0);
    CHECK_EQUAL(tally_folded(key_of(1)).count, 1);
    CHECK_EQUAL(tally_folded(key_of(1500000)).count, 1048576);
    CHECK_EQUAL(tally_folded(key_of(UINT64_MAX)).count, 1ull << 63);
    CHECK(tally_is_folded(tally_folded(key_of(5))));
    CHECK_EQUAL(tally_other(key_of(5)).word, tally_key(NO_COMM, LEVEL_WORK, 0, 0, 0, 0, 0, 0).word);
}

TEST(calls_are_counted_exactly) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    for (int i = 0; i < 10; i++) tally_call(writer, key_of(100));
    tally_call(writer, key_of(7));
    CHECK(writer->tally);
    union slot *entry = tally_find_fast(writer, key_of(100));
    CHECK(entry);
    CHECK_EQUAL(entry->tally.calls, 10);
    CHECK_EQUAL(entry->tally.count_sum, 1000);
    tally_visit(add_up);
    CHECK_EQUAL(sums.keys, 2);
    CHECK_EQUAL(sums.calls, 11);
    CHECK_EQUAL(sums.count_sum, 1007);
    CHECK_EQUAL(counter_value(COUNTER_tally_folded, 0), 0);
}

TEST(further_keys_are_folded_and_sums_stay_exact) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    u64 expected = 0;
    enum { KEYS = 5000 };
    for (u64 count = 1; count <= KEYS; count++) {
        tally_call(writer, key_of(count));
        expected += count;
    }
    tally_visit(add_up);
    CHECK_EQUAL(sums.calls, KEYS);
    CHECK_EQUAL(sums.count_sum, expected);
    CHECK(sums.keys >= TALLY_EXACT_KEYS && sums.keys <= TALLY_EXACT_KEYS + 64);
    CHECK(sums.folded > 0);
    u64 folded = counter_value(COUNTER_tally_folded, 0);
    CHECK(folded >= KEYS - TALLY_EXACT_KEYS && folded < KEYS);
    struct tally_key late = key_of(KEYS);
    CHECK(tally_same(tally_counted_as(late), tally_folded(late)));
    CHECK(tally_same(tally_counted_as(key_of(1)), key_of(1)));
}

TEST(threads_without_a_stream_share_a_table) {
    start_recorder(64);
    for (int i = 0; i < 5; i++) tally_slow(NULL, key_of(3));
    tally_visit(add_up);
    CHECK_EQUAL(sums.keys, 1);
    CHECK_EQUAL(sums.calls, 5);
    CHECK_EQUAL(sums.count_sum, 15);
}

TEST(what_finds_no_place_is_counted_by_level) {
    start_recorder(64);
    for (u32 comm = 0; comm < 4000; comm++)
        tally_slow(NULL, tally_key(comm, LEVEL_CALL, 1, 1, 0, 0, 0, 2));
    tally_visit(add_up);
    CHECK_EQUAL(sums.calls, 4000);
    CHECK_EQUAL(sums.count_sum, 8000);
    CHECK(counter_value(COUNTER_tally_other, 0) > 0);
}

TEST(totals_add_up_all_tables) {
    start_recorder(64);
    struct writer *writer = writer_of_thread();
    for (int i = 0; i < 4; i++) tally_call(writer, key_of(8));
    for (int i = 0; i < 3; i++) tally_slow(NULL, key_of(8));
    totals_update();
    struct totals_entry *entry = totals_entry(key_of(8));
    CHECK_EQUAL(entry->calls, 7);
    CHECK_EQUAL(entry->count_sum, 56);
    CHECK(entry->changed);
    tally_call(writer, key_of(8));
    totals_update();
    CHECK_EQUAL(entry->calls, 8);
}
