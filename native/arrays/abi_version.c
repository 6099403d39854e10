// What tells Python that this library was built from the sources that it was generated from, and in
// a checkout from those that lie there.
#include "arrays.h"
#include "arrays_sources.h"

EXPORT u64 ncclscope_abi_version(void) { return arrays_abi_version(); }

EXPORT const char *ncclscope_sources(void) { return ARRAYS_SOURCES; }
