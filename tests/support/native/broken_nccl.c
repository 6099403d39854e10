// A libnccl with a fault, for the benchmark to find:
//   -DWRONG_RESULT   in front of the simulated one: ncclAllReduce spoils one element of its result
//   -DOLD            of release 2.6, before ncclSend
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef WRONG_RESULT
typedef int all_reduce(const void *, void *, size_t, int, int, void *, void *);

int cudaMemsetAsync(void *memory, int value, size_t bytes, void *stream);

EXPORT int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, void *comm,
                         void *stream) {
    all_reduce *real = (all_reduce *)dlsym(RTLD_NEXT, "ncclAllReduce");
    int result = real(send, recv, count, type, op, comm, stream);
    if (result == 0) cudaMemsetAsync((char *)recv + count / 2 * 4, 0x11, 4, stream);
    return result;
}
#endif

#ifdef OLD
EXPORT int ncclGetVersion(int *version) { return *version = 2604, 0; }
EXPORT int ncclCommInitRank(void) { return 3; }
EXPORT int ncclAllReduce(void) { return 3; }
#endif
