// Which context is current in a thread, and which are alive.
#include "contexts.h"

#include <stdio.h>
#include <stdlib.h>

#include "driver.h"
#include "faults.h"

enum { MAX_DEVICES = 64, MAX_MADE = 16, MAX_DEPTH = 8 };
enum { OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };

static struct context primaries[MAX_DEVICES], made[MAX_MADE];
static _Atomic int made_count;
// The last one is current.
static _Thread_local struct context *stack[MAX_DEPTH];
static _Thread_local int depth;

struct context *context_current(void) { return depth ? stack[depth - 1] : NULL; }

static void make_current(struct context *context) {
    if (!depth) depth = 1;
    stack[depth - 1] = context;
}

void driver_use_device(int device) {
    struct context *context = &primaries[device % MAX_DEVICES];
    context->device = device;
    context->active = true;
    struct context *before = context_current();
    // The runtime goes on in a context that the program has made, on the same device.
    bool is_own = before >= made && before < made + MAX_MADE && before->active;
    if (!is_own || before->device != device) make_current(context);
}

static void end(struct context *context) {
    context->generation++;
    context->active = false;
}

void driver_reset_device(int device) { end(&primaries[device % MAX_DEVICES]); }

int context_get_current(void **context) {
    int error = fault_of_call("cuCtxGetCurrent");
    *context = error ? NULL : context_current();
    return error;
}

int context_get_device(int *device) {
    int error = fault_of_call("cuCtxGetDevice");
    if (!error && !context_current()) error = INVALID_CONTEXT;
    if (!error) *device = context_current()->device;
    return error;
}

// ---- primary ones ----
int context_primary_state(int device, unsigned *flags, int *active) {
    int error = fault_of_call("cuDevicePrimaryCtxGetState");
    if (!error && (device < 0 || device >= MAX_DEVICES)) error = INVALID_DEVICE;
    if (error) return error;
    *flags = 0;
    *active = primaries[device].active;
    return 0;
}

int context_retain_primary(void **context, int device) {
    *context = &primaries[device % MAX_DEVICES];
    return fault_of_call("cuDevicePrimaryCtxRetain");
}

int context_release_primary(int device) {
    (void)device;
    return 0;
}

// ---- any ----
int context_push(struct context *context) {
    int error = fault_of_call("cuCtxPushCurrent_v2");
    if (!error && depth == MAX_DEPTH) error = OUT_OF_MEMORY;
    if (error) return error;
    if (!context->active) {
        fprintf(stderr, "simulated driver: a destroyed context was made current\n");
        abort();
    }
    stack[depth++] = context;
    return 0;
}

int context_pop(void **context) {
    if (!depth) return INVALID_CONTEXT;
    *context = stack[--depth];
    return 0;
}

int context_create(struct context **context, unsigned flags, int device) {
    (void)flags;
    int error = fault_of_call("cuCtxCreate_v2"), place = made_count++;
    if (!error && place >= MAX_MADE) error = OUT_OF_MEMORY;
    if (error) return error;
    *context = &made[place];
    made[place].device = device;
    made[place].active = true;
    make_current(*context);
    return 0;
}

int context_destroy(struct context *context) {
    end(context);
    if (context_current() == context) depth--;
    return 0;
}
