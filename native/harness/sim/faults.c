// Reads the faults, and counts calls.
#include "faults.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nccl_api.h"

enum { MAX_FAULTS = 32 };

static struct fault {
    char function[48], value[16];
    long first;
    bool all_later;
    _Atomic long calls;
} faults[MAX_FAULTS];
static int fault_count;

static void add(const char *word) {
    struct fault *fault = &faults[fault_count];
    char sign = 0;
    if (fault_count == MAX_FAULTS) return;
    if (sscanf(word, "%47[^@=]@%ld%c", fault->function, &fault->first, &sign) < 1) return;
    fault->all_later = sign == '+';
    const char *value = strchr(word, '=');
    snprintf(fault->value, sizeof fault->value, "%s", value ? value + 1 : "");
    fault_count++;
}

static void read_all(void) {
    const char *text = getenv("NCCLSCOPE_SIM_CUDA_FAULTS");
    char *copy = strdup(text ? text : ""), *rest = copy;
    for (char *word; (word = strtok_r(rest, ",", &rest));) add(word);
    free(copy);
}

static void read_once(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_all);
}

// The driver does not work in a child that was forked: whoever calls it there has a defect.
static void refuse_forked_child(const char *function) {
    static _Atomic pid_t owner;
    pid_t none = 0;
    atomic_compare_exchange_strong(&owner, &none, getpid());
    if (owner == getpid()) return;
    fprintf(stderr, "simulated driver: %s was called in a forked child\n", function);
    abort();
}

static int value_of(const char *text) {
    if (strcmp(text, "capturing") == 0) return FAULT_CAPTURING;
    if (strncmp(text, "slow", 4) != 0) return atoi(text);
    nanosleep(&(struct timespec){.tv_nsec = atoi(text + 4) * 1000000L}, NULL);
    return 0;
}

int fault_of_call(const char *function) {
    read_once();
    refuse_forked_child(function);
    int result = 0;
    for (int i = 0; i < fault_count; i++) {
        struct fault *fault = &faults[i];
        if (strcmp(fault->function, function) != 0 || !fault->first) continue;
        long call = ++fault->calls;
        if (call == fault->first || (fault->all_later && call > fault->first))
            result = value_of(fault->value);
    }
    return result;
}

SIM_EXPORT long ncclSimDriverCalls(const char *function) {
    for (int i = 0; i < fault_count; i++)
        if (strcmp(faults[i].function, function) == 0) return faults[i].calls;
    return 0;
}

bool fault_is_missing(const char *function) {
    read_once();
    for (int i = 0; i < fault_count; i++)
        if (strcmp(faults[i].function, function) == 0 && strcmp(faults[i].value, "missing") == 0)
            return true;
    return false;
}
