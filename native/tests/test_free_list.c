// The lock-free stack of free places.
#include "free_list.h"

#include <pthread.h>

#include "test.h"

enum { PLACES = 64, ROUNDS = 200000 };
static u64 list;
static u32 next_place[PLACES], owners[PLACES];

TEST(places_come_back_last_in_first_out) {
    CHECK_EQUAL(free_list_pop(&list, next_place), FREE_LIST_EMPTY);
    for (u32 place = 0; place < 3; place++) free_list_push(&list, next_place, place);
    CHECK_EQUAL(free_list_pop(&list, next_place), 2);
    free_list_push(&list, next_place, 2);
    CHECK_EQUAL(free_list_pop(&list, next_place), 2);
    CHECK_EQUAL(free_list_pop(&list, next_place), 1);
    CHECK_EQUAL(free_list_pop(&list, next_place), 0);
    CHECK_EQUAL(free_list_pop(&list, next_place), FREE_LIST_EMPTY);
}

TEST(every_change_raises_the_version) {
    free_list_push(&list, next_place, 0);
    u64 before = list;
    CHECK_EQUAL(free_list_pop(&list, next_place), 0);
    free_list_push(&list, next_place, 0);
    CHECK_EQUAL((u32)list, (u32)before);
    CHECK(list >> 32 > before >> 32);
}

static void *take_and_give(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        u32 place = free_list_pop(&list, next_place);
        if (place == FREE_LIST_EMPTY) continue;
        CHECK_EQUAL(__atomic_fetch_add(&owners[place], 1, __ATOMIC_RELAXED), 0);
        __atomic_fetch_sub(&owners[place], 1, __ATOMIC_RELAXED);
        free_list_push(&list, next_place, place);
    }
    return unused;
}

TEST(no_place_has_two_owners) {
    pthread_t threads[4];
    for (u32 place = 0; place < 3; place++) free_list_push(&list, next_place, place);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, take_and_give, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    u32 left = 0;
    while (free_list_pop(&list, next_place) != FREE_LIST_EMPTY) left++;
    CHECK_EQUAL(left, 3);
}
