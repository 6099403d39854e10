// Plays a transcript: the callbacks of one real process, from one thread per recorded thread, in
// the recorded order.
#ifndef NCCLSCOPE_PLAY_H
#define NCCLSCOPE_PLAY_H

#include <stdbool.h>
#include <stdint.h>

enum play_end {
    END_FINALIZE,
    END_EXIT,
    END_KILL
};  // as recorded; exit without finalize; SIGKILL after the last call

struct play_options {
    const char *plugin, *transcript;
    bool realtime;
    enum play_end end;
    uint64_t die_at;  // SIGKILL right after this many callbacks; 0: never
    uint64_t times;   // how often to play the whole transcript in this process
};

int play(const struct play_options *options);

#endif
