// Hands lines to NCCL's logger, and keeps what happens elsewhere as notes.
#include "log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "meta.h"

enum { LEVEL_INFO = 3, SUBSYSTEM_PROFILE = 0x4000 };

static nccl_log_fn nccl_log;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // never taken in an event callback
static char pending[512];

void log_use(nccl_log_fn log) {
    if (log) __atomic_store_n(&nccl_log, log, __ATOMIC_RELAXED);
}

static void emit(const char *text) {
    nccl_log_fn log = __atomic_load_n(&nccl_log, __ATOMIC_RELAXED);
    if (log) log(LEVEL_INFO, SUBSYSTEM_PROFILE, "ncclscope", 0, "PROFILER/ncclscope: %s", text);
}

void log_line(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    emit(text);
}

void log_keep(const char *what, const char *text) {
    static u32 notes;
    char note[512];
    snprintf(note, sizeof note, "%s%.480s", what, text);
    meta_text(TEXT_NOTE, __atomic_fetch_add(&notes, 1, __ATOMIC_RELAXED), note, strlen(note));
}

void log_note(const char *format, ...) {
    char text[480];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    log_keep("", text);
    pthread_mutex_lock(&lock);
    snprintf(pending, sizeof pending, "%s", text);
    pthread_mutex_unlock(&lock);
}

void log_pending(void) {
    char text[512];
    pthread_mutex_lock(&lock);
    memcpy(text, pending, sizeof text);
    pending[0] = 0;
    pthread_mutex_unlock(&lock);
    if (text[0]) emit(text);
}
