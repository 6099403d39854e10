// Texts of ranges as numbers.
#include "range_text.h"

#include <pthread.h>

#include "test.h"

static u32 number_of(const char *text) { return range_text(text, strlen(text)); }

TEST(a_text_has_one_number_at_any_address) {
    char first[] = "forward", second[] = "forward", other[] = "backward";
    u32 number = number_of(first);
    CHECK(number != 0);
    CHECK_EQUAL(number_of(second), number);
    CHECK(number_of(other) != number);
    memcpy(first, "changed", 7);  // PyTorch reuses addresses
    CHECK(number_of(first) != number);
}

TEST(texts_of_all_lengths_are_told_apart) {
    char text[200];
    u32 numbers[RANGE_TEXT_BYTES + 1];
    memset(text, 'x', sizeof text);
    for (u32 length = 0; length <= RANGE_TEXT_BYTES; length++) {
        numbers[length] = range_text(text, length);
        CHECK(numbers[length] != 0);
        for (u32 other = 0; other < length; other++) CHECK(numbers[other] != numbers[length]);
    }
    CHECK_EQUAL(range_text(text, 200), numbers[RANGE_TEXT_BYTES]);
    for (u32 length = 0; length <= RANGE_TEXT_BYTES; length++)
        CHECK_EQUAL(range_text(text, length), numbers[length]);
}

TEST(texts_that_differ_in_one_byte_are_told_apart) {
    char text[61];
    memset(text, 'a', sizeof text);
    u32 same = range_text(text, 60);
    for (int at = 0; at < 60; at++) {
        text[at] = 'b';
        CHECK(range_text(text, 60) != same);
        text[at] = 'a';
        CHECK_EQUAL(range_text(text, 60), same);
    }
}

TEST(a_full_table_takes_no_new_text_and_keeps_the_old_ones) {
    char text[32];
    u32 refused = 0, first = number_of("first");
    for (int i = 0; i < 40000; i++) {
        snprintf(text, sizeof text, "text %d", i);
        refused += number_of(text) == 0;
    }
    CHECK(refused >= 40000 - RANGE_TEXTS);
    CHECK(refused < 40000 - RANGE_TEXTS + 100);  // few found all their places taken
    CHECK_EQUAL(number_of("first"), first);
    CHECK_EQUAL(number_of("text 39999"), 0);
}

TEST(classes_of_texts_are_known) {
    CHECK_EQUAL(range_text_class(number_of("Optimizer.step#AdamW.step")), CLASS_OPTIMIZER);
    CHECK_EQUAL(range_text_class(number_of("enumerate(DataLoader)#_It.__next__")), CLASS_DATA);
    CHECK_EQUAL(range_text_class(number_of("ncclscope.step")), CLASS_STEP);
    CHECK_EQUAL(range_text_class(number_of("step 1")), CLASS_OTHER);
    CHECK_EQUAL(range_text_class(number_of("ncclAllReduce")), CLASS_NCCL_CALL);
    CHECK_EQUAL(range_text_class(number_of("ncclCommSplit")), CLASS_OTHER);
    CHECK_EQUAL(range_text_class(1u << 30), CLASS_OTHER);
}

enum { THREADS = 4, SHARED = 2000 };
static u32 by_thread[THREADS][SHARED];

static void *add_texts(void *argument) {
    u32 *numbers = argument;
    char text[32];
    for (int i = 0; i < SHARED; i++) {
        snprintf(text, sizeof text, "shared %d", i);
        numbers[i] = number_of(text);
    }
    return NULL;
}

TEST(threads_agree_on_numbers_once_all_have_asked) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, add_texts, by_thread[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    u32 settled[SHARED];
    add_texts(settled);
    u32 again[SHARED];
    add_texts(again);
    for (int i = 0; i < SHARED; i++) {
        CHECK(settled[i] != 0);
        CHECK_EQUAL(again[i], settled[i]);
        for (int other = 0; other < i; other++) CHECK(settled[other] != settled[i]);
    }
}
