// Finds the driver's functions.
#define _GNU_SOURCE
#include "cuda_driver.h"

#include <dlfcn.h>

struct cuda_driver cuda;
static const char *missing_for_events = "libcuda", *missing_for_markers = "libcuda",
                  *missing_for_memory = "libcuda", *missing_for_identity = "libcuda";

typedef void *(*find_fn)(const char *symbol);
static void *library;  // never closed, as its functions are called

static void *find_in_library(const char *symbol) { return dlsym(library, symbol); }

// The simulated NCCL brings a driver along.
static find_fn simulated_driver(const void *nccl_address) {
    Dl_info info;
    find_fn find = NULL;
    if (!nccl_address || !dladdr(nccl_address, &info) || !info.dli_fname) return NULL;
    void *caller = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (caller) *(void **)&find = dlsym(caller, "ncclscopeSimulatedDriver");
    if (caller && !find) dlclose(caller);
    return find;
}

static void find_one(find_fn find, const char *symbol, void **function, const char **missing) {
    *function = find(symbol);
    if (!*function && !*missing) *missing = symbol;
}

void cuda_driver_find(const void *nccl_address) {
    find_fn find_function = simulated_driver(nccl_address);
    if (!find_function && (library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)))
        find_function = find_in_library;
    if (!find_function) return;
    missing_for_events = missing_for_markers = missing_for_memory = missing_for_identity = NULL;
#define FIND(member, symbol, arguments) \
    find_one(find_function, symbol, (void **)&cuda.member, missing);
    const char **missing = &missing_for_events;
    CUDA_EVENT_FUNCTIONS(FIND)
    missing = &missing_for_markers;
    CUDA_MARKER_FUNCTIONS(FIND)
    missing = &missing_for_memory;
    CUDA_MEMORY_FUNCTIONS(FIND)
    missing = &missing_for_identity;
    CUDA_IDENTITY_FUNCTIONS(FIND)
#undef FIND
    if (!cuda.context_device) missing_for_identity = "cuCtxGetDevice";
    if (missing_for_events) missing_for_markers = missing_for_events;
    if (missing_for_markers) missing_for_memory = missing_for_markers;
}

const char *cuda_missing_for_events(void) { return missing_for_events; }
const char *cuda_missing_for_markers(void) { return missing_for_markers; }
const char *cuda_missing_for_memory(void) { return missing_for_memory; }
const char *cuda_missing_for_identity(void) { return missing_for_identity; }
