// Bytes of operations.
#include "arrays.h"

// Bytes of each count, rounded up; NONE where the count or the datatype is not known, or the size
// cannot be.
EXPORT void ncclscope_sizes(const struct measures *measures, const i64 *counts, const i8 *datatype,
                            const i8 *function, const i32 *communicator, i64 rows, i64 *bytes) {
    for (i64 i = 0; i < rows; i++) {
        i64 each = datatype[i] < 0 ? 0 : measures->element_bits[datatype[i]], bits;
        i64 comm = communicator[i];
        if (function[i] >= 0 && measures->counts_one_rank[function[i]] && comm >= 0 &&
            comm < measures->communicators)
            each *= measures->ranks[comm];
        int wrong = counts[i] < 0 || !each || __builtin_mul_overflow(counts[i], each, &bits) ||
                    __builtin_add_overflow(bits, 7, &bits);
        bytes[i] = wrong || bits >> 3 > measures->most_bytes ? NONE : bits >> 3;
    }
}
