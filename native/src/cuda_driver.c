// Finds the driver's functions.
#define _GNU_SOURCE
#include "cuda_driver.h"

#include <dlfcn.h>

struct cuda_driver cuda;
static const char *missing_for_events = "libcuda", *missing_for_markers = "libcuda";

// The simulated NCCL has CUDA in the same library.
static void *open_simulation(const void *nccl_address) {
    Dl_info info;
    if (!nccl_address || !dladdr(nccl_address, &info) || !info.dli_fname) return NULL;
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library && dlsym(library, "ncclscopeSimulation")) return library;
    if (library) dlclose(library);
    return NULL;
}

static void find(void *library, const char *symbol, void **function, const char **missing) {
    *function = dlsym(library, symbol);
    if (!*function && !*missing) *missing = symbol;
}

void cuda_driver_find(const void *nccl_address) {
    void *library = open_simulation(nccl_address);  // never closed, as its functions are called
    if (!library) library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return;
    missing_for_events = missing_for_markers = NULL;
#define FIND(member, symbol, arguments) find(library, symbol, (void **)&cuda.member, missing);
    const char **missing = &missing_for_events;
    CUDA_EVENT_FUNCTIONS(FIND)
    missing = &missing_for_markers;
    CUDA_MARKER_FUNCTIONS(FIND)
#undef FIND
    if (missing_for_events) missing_for_markers = missing_for_events;
}

const char *cuda_missing_for_events(void) { return missing_for_events; }
const char *cuda_missing_for_markers(void) { return missing_for_markers; }
