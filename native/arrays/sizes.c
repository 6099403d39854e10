// Bytes of operations.
#include "arrays.h"

// What counts count. Names have codes below 128.
struct measures {
    const i64 *element_bytes;  // by datatype
    const i8 *shared;          // by function: whether a count is one rank's share
    const i64 *ranks;          // by communicator
    i64 communicators;
    i64 most_bytes;  // of one operation: more is damage
};

// Bytes of each count, NONE where it is not known or cannot be. A datatype that is not known has
// elements of one byte.
EXPORT void ncclscope_sizes(const struct measures *measures, const i64 *counts, const i8 *datatype,
                            const i8 *function, const i32 *communicator, i64 rows, i64 *bytes) {
    for (i64 i = 0; i < rows; i++) {
        i64 each = datatype[i] < 0 ? 1 : measures->element_bytes[datatype[i]], size;
        i64 comm = communicator[i];
        if (function[i] >= 0 && measures->shared[function[i]] && comm >= 0 &&
            comm < measures->communicators)
            each *= measures->ranks[comm];
        int wrong = counts[i] < 0 || __builtin_mul_overflow(counts[i], each, &size);
        bytes[i] = wrong || size > measures->most_bytes ? NONE : size;
    }
}
