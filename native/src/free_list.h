// A lock-free stack of free places: chunks, streams, handles of chained events.
//
// The lower half of `top` is 1 + the first free place (0: none); next[place] is the same for the
// place below it. The upper half is a version that every change raises. Without it a thread that
// read top = A, next[A] = B and was then preempted could install B although others had taken A and
// B and returned A meanwhile: it would hand out B twice (the ABA problem).
#ifndef NCCLSCOPE_FREE_LIST_H
#define NCCLSCOPE_FREE_LIST_H

#include <stdbool.h>

#include "ncclscope/format.h"

#define FREE_LIST_EMPTY 0xFFFFFFFFu

static inline u32 free_list_pop(u64 *list, const u32 *next) {
    u64 top = __atomic_load_n(list, __ATOMIC_ACQUIRE), below;
    do {
        if ((u32)top == 0) return FREE_LIST_EMPTY;
        below = ((top >> 32) + 1) << 32 | __atomic_load_n(&next[(u32)top - 1], __ATOMIC_RELAXED);
    } while (
        !__atomic_compare_exchange_n(list, &top, below, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return (u32)top - 1;
}

static inline void free_list_push(u64 *list, u32 *next, u32 place) {
    u64 top = __atomic_load_n(list, __ATOMIC_RELAXED), above;
    do {
        __atomic_store_n(&next[place], (u32)top, __ATOMIC_RELAXED);
        above = ((top >> 32) + 1) << 32 | (place + 1);
    } while (
        !__atomic_compare_exchange_n(list, &top, above, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

#endif
