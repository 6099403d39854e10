// What tells Python that this library was built from the sources that it was generated from.
#include "arrays.h"

EXPORT u64 ncclscope_abi_version(void) { return arrays_abi_version(); }
