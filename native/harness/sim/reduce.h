// Datatypes and reduction operators.
#ifndef NCCLSCOPE_SIM_REDUCE_H
#define NCCLSCOPE_SIM_REDUCE_H

#include <stddef.h>

#include "nccl_api.h"

size_t datatype_bytes(ncclDataType_t type);      // 0: no such type
const char *datatype_name(ncclDataType_t type);  // as NCCL's profiler calls it

// out[i] = op over inputs' element i, in the order of inputs. `out` may be none of them.
void reduce(void *out, const void *const *inputs, int input_count, size_t count,
            ncclDataType_t type, ncclRedOp_t op);

#endif
