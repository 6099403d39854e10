// A libcuda.so.1 whose calls do nothing: enough of it that the recorder samples launches.
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuCtxGetCurrent(void **context) {
    static char only;
    *context = &only;
    return 0;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int now;
    int before = now;
    now = *mode;
    *mode = before;
    return 0;
}
EXPORT int cuStreamIsCapturing(void *stream, int *status) {
    (void)stream;
    *status = 0;
    return 0;
}
EXPORT int cuEventCreate(void **event, unsigned flags) {
    static char any;
    (void)flags;
    *event = &any;
    return 0;
}
EXPORT int cuEventRecord(void *event, void *stream) {
    (void)event, (void)stream;
    return 0;
}
EXPORT int cuEventQuery(void *event) {
    (void)event;
    return 0;
}
EXPORT int cuEventElapsedTime(float *ms, void *start, void *stop) {
    (void)start, (void)stop;
    *ms = 0.02f;
    return 0;
}
