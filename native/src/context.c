// Keeps the lines, all of them: a folder that is deleted is begun anew.
#include "context.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "callback_state.h"
#include "log.h"
#include "sink.h"

#define FILE_NAME "context.jsonl"
#define MAX_BYTES (4u << 20)
#define GROWTH (64u << 10)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // never taken in an event callback
static char *lines;
static size_t used, room;
static size_t written;  // helper thread
static u32 folder;      // helper thread: the one that `written` speaks of

static bool make_room(size_t bytes) {
    if (used + bytes > MAX_BYTES) return false;
    if (used + bytes <= room) return true;
    size_t wanted = (used + bytes + GROWTH - 1) / GROWTH * GROWTH;
    char *grown = realloc(lines, wanted);
    if (!grown) return false;
    lines = grown;
    room = wanted;
    return true;
}

bool context_append(const char *line, size_t bytes) {
    static bool complained;
    if (!callback_state_is_recording()) return false;
    pthread_mutex_lock(&lock);
    bool fits = bytes < MAX_BYTES && make_room(bytes + 1);
    if (fits) {
        memcpy(lines + used, line, bytes);
        for (size_t i = 0; i < bytes; i++)  // one line is one line
            if (lines[used + i] == '\n') lines[used + i] = ' ';
        lines[used + bytes] = '\n';
        used += bytes + 1;
    }
    bool first = !fits && !complained;
    complained |= !fits;
    pthread_mutex_unlock(&lock);
    if (first) log_note(FILE_NAME " has reached %u MB; later lines are left out", MAX_BYTES >> 20);
    return fits;
}

void context_write(void) {
    if (folder != sink_folders()) {
        folder = sink_folders();
        written = 0;
    }
    pthread_mutex_lock(&lock);
    size_t due = used - written;
    char *copy = due ? malloc(due) : NULL;
    if (copy) memcpy(copy, lines + written, due);
    pthread_mutex_unlock(&lock);
    if (copy && sink_write_text(FILE_NAME, copy, due, written)) written += due;
    free(copy);
}
