// Contexts of the simulated driver: a device's primary one, and those that programs make.
//
// As with the real driver, a thread that has not called the runtime has no current context, and a
// primary context that is made anew has the address of the one before. To make a context current
// that was destroyed is undefined there; here it ends the process.
#ifndef NCCLSCOPE_SIM_CONTEXTS_H
#define NCCLSCOPE_SIM_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

struct context {
    _Atomic uint64_t generation;  // how often it was destroyed
    _Atomic bool active;
    int device;
};

struct context *context_current(void);  // NULL: none

// ---- the driver's functions ----
int context_get_current(void **context);
int context_get_device(int *device);
int context_primary_state(int device, unsigned *flags, int *active);
int context_retain_primary(void **context, int device);
int context_release_primary(int device);
int context_push(struct context *context);
int context_pop(void **context);
int context_create(struct context **context, unsigned flags, int device);
int context_destroy(struct context *context);

#endif
