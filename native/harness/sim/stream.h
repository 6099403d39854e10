// Streams of the simulated GPU: a queue, a thread that works it off, and the GPU's time.
//
// A task has a start and an end on the simulated GPU's time (sim_now_ns's clock). Work that was
// queued in time starts where the one before it ended, however late the thread comes to it.
#ifndef NCCLSCOPE_SIM_STREAM_H
#define NCCLSCOPE_SIM_STREAM_H

#include <stdbool.h>
#include <stdint.h>

struct stream;
struct graph;

// What a stream does: `run` gets when it starts and returns when it ended. A task may run several
// times, from graphs; `launch`, where there is one, numbers them in the order of launching.
// `release` is called when nobody holds it any more.
struct task {
    int64_t (*run)(struct task *task, uint64_t number, int64_t start_ns);
    uint64_t (*launch)(struct task *task);
    void (*release)(struct task *task);
    int holders;
};

void task_release(struct task *task);

// The machine's CLOCK_MONOTONIC, also where a posed host's clock is put before it.
int64_t sim_now_ns(void);
void sim_sleep_until(int64_t t);

struct stream *stream_make(void);
struct stream *stream_of(struct stream *given);  // the default one for NULL
// Queues the task, or adds it to the graph that is being captured; in an invalidated capture it is
// gone. Takes the caller's hold.
void stream_add(struct stream *stream, struct task *task);

// ---- captures: of a stream, and of those that join it through events ----
// CUDA's numbers of a stream's status.
enum { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED };
int stream_capture_status(struct stream *stream);
bool stream_captures(struct stream *stream);  // a valid capture
// The number of the capture that is under way, unlike that of any other; 0: none is.
uint64_t stream_capture_id(struct stream *stream);
// A place in a capture, as an event keeps it that was recorded there. `capture` 0: in none.
struct capture_point {
    uint64_t capture;
    struct stream *stream;
    int tasks;  // that the stream had added
};
struct capture_point stream_capture_point(struct stream *stream);
// The stream waits for a place in a capture: it joins the capture, or the capture's other stream is
// joined to it. CUDA's error, else 0.
int stream_wait_for_point(struct stream *stream, struct capture_point point);
// The program did what its capture forbids.
void stream_invalidate_capture(struct stream *stream);
// Invalidates the captures that forbid an unsafe call by this thread, whose own mode is given as
// CUDA's number; false where there are none.
bool stream_invalidate_captures(int thread_mode);
void stream_wait(struct stream *stream);
bool stream_idle(struct stream *stream);
void stream_destroy(struct stream *stream);
void stream_wait_all(void);

bool stream_begin_capture(struct stream *stream, int mode);
// CUDA's error, else 0 and the graph.
int stream_end_capture(struct stream *stream, struct graph **graph);
struct graph *graph_make(void);
// Adds another graph's tasks.
void graph_append(struct graph *graph, const struct graph *other);
// Takes another graph's tasks in the place of its own; false: it has not as many.
bool graph_assign(struct graph *graph, const struct graph *other);
void graph_launch(struct graph *graph, struct stream *stream);
void graph_release(struct graph *graph);

#endif
