// Streams, their threads, and graphs captured from them.
#define _GNU_SOURCE
#include "stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { QUEUE_TO_START_NS = 3000 };

struct queued {
    struct queued *next;
    struct task *task;
    uint64_t number;
    int64_t queued_ns;
};

struct stream {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct queued *first, *last;
    uint64_t added, done;
    int64_t end_ns;  // of the last task
    struct graph *capture;
    bool forked, joined;  // came to the capture by an event; and another one waits for its end
    int captured;         // tasks that it has added to the capture
    bool closing;
    int watchers;         // who keeps it from being freed
    struct stream *next;  // in the list of all
};

struct graph {
    int count, room;
    struct task **tasks;
    // ---- while it is captured ----
    uint64_t id;
    int mode;
    pthread_t thread;
    _Atomic bool invalid;
};

enum { CAPTURE_GLOBAL, CAPTURE_THREAD_LOCAL, CAPTURE_RELAXED };
// CUDA's errors.
enum { ILLEGAL_STATE = 401, INVALIDATED = 901, MERGE = 902, UNMATCHED, UNJOINED, ISOLATION };

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *all_streams, *default_stream;

int64_t sim_now_ns(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void sim_sleep_until(int64_t t) {
    struct timespec until = {t / 1000000000, t % 1000000000};
    if (t > sim_now_ns())
        syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

void task_release(struct task *task) {
    if (__atomic_sub_fetch(&task->holders, 1, __ATOMIC_ACQ_REL) == 0) task->release(task);
}

static void *work_off(void *argument) {
    struct stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (!stream->first && !stream->closing)
            pthread_cond_wait(&stream->changed, &stream->lock);
        struct queued *next = stream->first;
        if (!next) break;
        int64_t start_ns = next->queued_ns + QUEUE_TO_START_NS;
        if (start_ns < stream->end_ns) start_ns = stream->end_ns;
        pthread_mutex_unlock(&stream->lock);

        int64_t end_ns = next->task->run(next->task, next->number, start_ns);
        task_release(next->task);

        pthread_mutex_lock(&stream->lock);
        stream->end_ns = end_ns;
        stream->first = next->next;
        if (!stream->first) stream->last = NULL;
        free(next);
        stream->done++;
        pthread_cond_broadcast(&stream->changed);
    }
    while (stream->watchers) pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    free(stream);
    return NULL;
}

struct stream *stream_make(void) {
    struct stream *stream = calloc(1, sizeof *stream);
    pthread_t thread;
    if (!stream) return NULL;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    if (pthread_create(&thread, NULL, work_off, stream) != 0) {
        free(stream);
        return NULL;
    }
    pthread_setname_np(thread, "sim stream");
    pthread_detach(thread);
    pthread_mutex_lock(&list_lock);
    stream->next = all_streams;
    all_streams = stream;
    pthread_mutex_unlock(&list_lock);
    return stream;
}

struct stream *stream_of(struct stream *given) {
    if ((uintptr_t)given > 2) return given;  // 1 and 2 are CUDA's names for default streams
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!default_stream) default_stream = stream_make();
    pthread_mutex_unlock(&lock);
    return default_stream;
}

static void enqueue(struct stream *stream, struct task *task) {
    struct queued *one = malloc(sizeof *one);
    pthread_mutex_lock(&stream->lock);
    uint64_t number = task->launch ? task->launch(task) : 0;
    *one = (struct queued){NULL, task, number, sim_now_ns()};
    if (stream->last) stream->last->next = one;
    else stream->first = one;
    stream->last = one;
    stream->added++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static void graph_add(struct graph *graph, struct task *task) {
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 16;
        graph->tasks = realloc(graph->tasks, (size_t)graph->room * sizeof(struct task *));
    }
    graph->tasks[graph->count++] = task;
}

void stream_add(struct stream *stream, struct task *task) {
    struct graph *graph = stream->capture;
    if (!graph) {
        enqueue(stream, task);
        return;
    }
    if (graph->invalid) {
        task_release(task);
        return;
    }
    graph_add(graph, task);
    stream->captured++;
    stream->joined = false;
}

static bool forbids(const struct graph *capture, int thread_mode) {
    bool own = pthread_equal(capture->thread, pthread_self());
    if (thread_mode == CAPTURE_RELAXED || capture->mode == CAPTURE_RELAXED) return false;
    if (own) return true;
    return thread_mode == CAPTURE_GLOBAL && capture->mode == CAPTURE_GLOBAL;
}

bool stream_invalidate_captures(int thread_mode) {
    bool any = false;
    pthread_mutex_lock(&list_lock);
    for (struct stream *stream = all_streams; stream; stream = stream->next)
        if (stream->capture && forbids(stream->capture, thread_mode))
            any = stream->capture->invalid = true;
    pthread_mutex_unlock(&list_lock);
    return any;
}

void stream_wait(struct stream *stream) {
    pthread_mutex_lock(&stream->lock);
    uint64_t wanted = stream->added;
    while (stream->done < wanted) pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

bool stream_idle(struct stream *stream) {
    pthread_mutex_lock(&stream->lock);
    bool idle = stream->done == stream->added;
    pthread_mutex_unlock(&stream->lock);
    return idle;
}

void stream_destroy(struct stream *stream) {
    pthread_mutex_lock(&list_lock);
    struct stream **place = &all_streams;
    while (*place && *place != stream) place = &(*place)->next;
    if (*place) *place = stream->next;
    pthread_mutex_unlock(&list_lock);
    pthread_mutex_lock(&stream->lock);
    stream->closing = true;  // the thread frees it when the queue is empty
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static void watch(struct stream *stream, int more) {
    pthread_mutex_lock(&stream->lock);
    stream->watchers += more;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

void stream_wait_all(void) {
    int count = 0, i = 0;
    pthread_mutex_lock(&list_lock);
    for (struct stream *stream = all_streams; stream; stream = stream->next) count++;
    struct stream **watched = calloc((size_t)count + 1, sizeof(struct stream *));
    for (struct stream *stream = all_streams; stream; stream = stream->next) {
        watch(stream, 1);
        watched[i++] = stream;
    }
    pthread_mutex_unlock(&list_lock);
    for (i = 0; i < count; i++) {
        stream_wait(watched[i]);
        watch(watched[i], -1);
    }
    free(watched);
}

// ---- captures ----
int stream_capture_status(struct stream *stream) {
    if (!stream->capture) return CAPTURE_NONE;
    return stream->capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_ACTIVE;
}

bool stream_captures(struct stream *stream) {
    return stream_capture_status(stream) == CAPTURE_ACTIVE;
}

uint64_t stream_capture_id(struct stream *stream) {
    return stream_captures(stream) ? stream->capture->id : 0;
}

struct capture_point stream_capture_point(struct stream *stream) {
    return (struct capture_point){stream_capture_id(stream), stream, stream->captured};
}

static struct graph *capture_of_id(uint64_t id) {
    struct stream *stream = all_streams;
    while (stream && !(stream->capture && stream->capture->id == id)) stream = stream->next;
    return stream ? stream->capture : NULL;
}

static int join(struct stream *stream, struct capture_point point) {
    struct graph *capture = capture_of_id(point.capture);
    if (!capture && !stream->capture) return ILLEGAL_STATE;
    if (!capture) {
        stream->capture->invalid = true;
        return ISOLATION;
    }
    if (capture->invalid || (stream->capture && stream->capture->invalid)) return INVALIDATED;
    if (stream->capture && stream->capture != capture) {
        stream->capture->invalid = capture->invalid = true;
        return MERGE;
    }
    if (!stream->capture) {
        stream->capture = capture;
        stream->forked = true;
        stream->joined = false;
        stream->captured = 0;
    } else if (point.stream != stream && point.tasks == point.stream->captured)
        point.stream->joined = true;
    return 0;
}

int stream_wait_for_point(struct stream *stream, struct capture_point point) {
    pthread_mutex_lock(&list_lock);
    int error = join(stream, point);
    pthread_mutex_unlock(&list_lock);
    return error;
}

void stream_invalidate_capture(struct stream *stream) {
    pthread_mutex_lock(&list_lock);
    if (stream->capture) stream->capture->invalid = true;
    pthread_mutex_unlock(&list_lock);
}

bool stream_begin_capture(struct stream *stream, int mode) {
    static _Atomic uint64_t captures;
    if (stream->capture) return false;
    struct graph *graph = graph_make();
    graph->id = ++captures;
    graph->mode = mode;
    graph->thread = pthread_self();
    pthread_mutex_lock(&list_lock);
    stream->capture = graph;
    stream->forked = false;
    stream->captured = 0;
    pthread_mutex_unlock(&list_lock);
    return true;
}

// Ends the capture in all of its streams. An invalidated one ends in a forked stream, too, if that
// is the one that the program ends.
static int end_capture(struct stream *ended, struct graph *graph) {
    int error = graph->invalid ? INVALIDATED : 0;
    if (!error && ended->forked) {
        graph->invalid = true;
        return UNMATCHED;
    }
    for (struct stream *stream = all_streams; stream; stream = stream->next) {
        if (stream->capture != graph) continue;
        if (!error && stream->forked && !stream->joined) error = UNJOINED;
        stream->capture = NULL;
    }
    return error;
}

int stream_end_capture(struct stream *stream, struct graph **made) {
    *made = NULL;
    pthread_mutex_lock(&list_lock);
    struct graph *graph = stream->capture;
    int error = graph ? end_capture(stream, graph) : ILLEGAL_STATE;
    pthread_mutex_unlock(&list_lock);
    if (error == UNMATCHED || !graph) return error;
    if (error) graph_release(graph);
    else *made = graph;
    return error;
}

// ---- graphs ----
struct graph *graph_make(void) { return calloc(1, sizeof(struct graph)); }

void graph_append(struct graph *graph, const struct graph *other) {
    for (int i = 0; i < other->count; i++) {
        __atomic_add_fetch(&other->tasks[i]->holders, 1, __ATOMIC_RELAXED);
        graph_add(graph, other->tasks[i]);
    }
}

static void release_tasks(struct graph *graph) {
    for (int i = 0; i < graph->count; i++) task_release(graph->tasks[i]);
    graph->count = 0;
}

bool graph_assign(struct graph *graph, const struct graph *other) {
    if (graph->count != other->count) return false;
    release_tasks(graph);
    graph_append(graph, other);
    return true;
}

void graph_launch(struct graph *graph, struct stream *stream) {
    for (int i = 0; i < graph->count; i++) {
        __atomic_add_fetch(&graph->tasks[i]->holders, 1, __ATOMIC_RELAXED);
        enqueue(stream, graph->tasks[i]);
    }
}

void graph_release(struct graph *graph) {
    release_tasks(graph);
    free(graph->tasks);
    free(graph);
}
