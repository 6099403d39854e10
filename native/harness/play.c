// Plays a transcript: makes the callbacks that a real job made, in the same order and threads.
#define _GNU_SOURCE
#include "play.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../src/nccl_abi.h"
#include "host.h"
#include "json_line.h"

enum callback { INIT, START, STOP, STATE, FINALIZE };

struct line {
    enum callback callback;
    int64_t t;
    int thread;                               // index
    uint64_t context, handle, parent, group;  // serial numbers of the transcript
    uint64_t again;  // start: serial number whose handle NCCL still has in the variable
    uint64_t raw;    // any value in place of the handle or, at start, of the context
    bool has_raw;
    struct host_comm comm;
    struct host_event event;
    int state, steps;
    uint64_t arg;
};

static struct line *lines;
static size_t line_count;
static int version, own_pid;
static uint64_t max_context, max_handle;
static int64_t thread_ids[256];
static int thread_count;

// What the plugin gave for each serial number. `absent`: NCCL of that release would not have made
// the event at all.
static struct {
    void *handle;
    bool absent;
    bool muted;  // a step of a ProxyOp that was refused: its states are not reported
} *events;
static void **contexts;

static struct host host;
static const struct play_options *options;
static uint64_t callbacks;

// ---- reading ----
static int thread_index(int64_t tid) {
    for (int i = 0; i < thread_count; i++)
        if (thread_ids[i] == tid) return i;
    if (thread_count == 256) return 0;
    thread_ids[thread_count] = tid;
    return thread_count++;
}

static const char *literal(const struct json_line *json, const char *key) {
    return host_literal(json_text(json, key));
}

static int number(const struct json_line *json, const char *key) {
    return (int)json_number(json, key, 0);
}

// Data of a network-plugin event, where the transcript has some.
static void read_net(const struct json_line *json, struct host_event *e) {
    e->net_id = json_number(json, "id", 0);
    if (e->net_id == NCCL_NET_IB_V1) {
        struct nccl_net_ib_v1 *ib = calloc(1, sizeof *ib);
        ib->type = (uint8_t)number(json, "nettype");
        ib->device = number(json, "device");
        ib->wr_id = (uint64_t)json_number(json, "wrid", 0);
        ib->opcode = number(json, "opcode");
        ib->qpNum = number(json, "qp");
        ib->length = (size_t)json_number(json, "length", 0);
        e->net_data = ib;
    } else if (e->net_id == NCCL_NET_SOCKET_V1) {
        struct nccl_net_socket_v1 *socket = calloc(1, sizeof *socket);
        socket->type = (uint8_t)number(json, "nettype");
        socket->fd = number(json, "fd");
        socket->op = number(json, "opcode");
        socket->length = (size_t)json_number(json, "length", 0);
        e->net_data = socket;
    } else {
        e->net_data = (const void *)1;  // nobody may look there
    }
}

#define READ_text(key) literal(json, key)
#define READ_address(key) json_hex(json, key)
#define READ_number(key) (uint64_t)json_number(json, key, 0)
#define READ_word(key) (uint32_t)number(json, key)
#define READ_integer(key) number(json, key)
#define READ_flag(key) number(json, key) != 0
#define READ(type, name, key) e->name = READ_##type(#key);
static void read_event(const struct json_line *json, struct host_event *e) {
    bool numbers = version == 1;
    e->type = (uint64_t)json_number(json, "type", 0);
    e->rank = number(json, "rank");
    HOST_EVENT_FIELDS(READ)
    if (numbers) {
        e->func_number = number(json, "func");
        e->dtype_number = number(json, "dtype");
        e->algo_number = number(json, "algo");
        e->proto_number = number(json, "proto");
    } else {
        e->func = literal(json, "func");
        e->dtype = literal(json, "dtype");
        e->algo = literal(json, "algo");
        e->proto = literal(json, "proto");
    }
    e->send = e->type == NCCL_P2P ? json_hex(json, "buff") : json_hex(json, "send");
    e->channels = number(json, version <= 3 ? "nmaxch" : "nch");
    if (e->type == NCCL_PROXY_OP) e->is_send = number(json, "send");
    if (e->type == NCCL_NET_PLUGIN) read_net(json, e);
}

static bool read_line(char *text, struct line *line) {
    struct json_line json;
    if (!json_parse(text, &json)) return false;
    const char *callback = json_text(&json, "cb");
    if (!callback) return false;
    memset(line, 0, sizeof *line);
    line->t = json_number(&json, "t", 0);
    line->thread = thread_index(json_number(&json, "tid", 0));
    line->context = (uint64_t)json_number(&json, "ctx", 0);
    line->handle = (uint64_t)json_number(&json, "h", 0);
    line->parent = (uint64_t)json_number(&json, "p", 0);
    line->group = (uint64_t)json_number(&json, "group", 0);
    line->again = (uint64_t)json_number(&json, "again", 0);
    line->has_raw = json_text(&json, "raw") != NULL;
    line->raw = json_hex(&json, "raw");
    if (line->context > max_context) max_context = line->context;
    if (line->handle > max_handle) max_handle = line->handle;
    if (strcmp(callback, "init") == 0) {
        line->callback = INIT;
        version = number(&json, "v");
        if (!own_pid)
            own_pid = (int)json_number(&json, "tid",
                                       0);  // the file's first line comes from the main thread
        const char *name = json_text(&json, "name");
        line->comm = (struct host_comm){
            json_hex(&json, "comm"), name && *name ? host_literal(name) : NULL,
            number(&json, "nnodes"), number(&json, "nranks"), number(&json, "rank")};
    } else if (strcmp(callback, "start") == 0) {
        line->callback = START;
        read_event(&json, &line->event);
    } else if (strcmp(callback, "stop") == 0) {
        line->callback = STOP;
    } else if (strcmp(callback, "state") == 0) {
        line->callback = STATE;
        line->state = number(&json, "s");
        line->arg = (uint64_t)json_number(&json, "a", 0);
        line->steps = number(&json, "a2");
    } else if (strcmp(callback, "finalize") == 0) {
        line->callback = FINALIZE;
    } else {
        return false;
    }
    return true;
}

static bool read_transcript(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "cannot read %s: %s\n", path, strerror(errno));
        return false;
    }
    char *text = NULL;
    size_t room = 0, lines_room = 0;
    bool fine = true;
    while (fine && getline(&text, &room, file) > 0) {
        if (line_count == lines_room) {
            lines_room = lines_room ? lines_room * 2 : 4096;
            lines = realloc(lines, lines_room * sizeof *lines);
        }
        text[strcspn(text, "\n")] = 0;
        fine = read_line(text, &lines[line_count]);
        if (!fine) fprintf(stderr, "%s: line %zu is not a transcript's\n", path, line_count + 1);
        line_count += fine;
    }
    free(text);
    fclose(file);
    if (fine && (version < 1 || version > NCCL_NEWEST_INTERFACE)) {
        fprintf(stderr, "%s: no init line with an interface version that is known\n", path);
        fine = false;
    }
    return fine;
}

// ---- playing ----
static void count_callback(void) {
    if (__atomic_add_fetch(&callbacks, 1, __ATOMIC_RELAXED) == options->die_at)
        kill(getpid(), SIGKILL);
}

// Children of an event that the plugin refused: up to 2.27 a NULL Group hides its collectives, a
// NULL ProxyOp its steps.
static bool nccl_would_skip(const struct line *line) {
    uint64_t parent = line->parent;
    if (!parent) return false;
    if (events[parent].absent) return true;
    if (events[parent].handle) return false;
    bool of_group = version <= 4 && (line->event.type == NCCL_COLL || line->event.type == NCCL_P2P);
    bool of_op = version <= 4 && line->event.type == NCCL_PROXY_STEP;
    return of_group || of_op;
}

// Which states come with arguments.
static bool has_args(int state) {
    if (state == NCCL_GROUP_START_DONE || state == NCCL_GROUP_END_BEGINS) return false;
    bool of_step = state >= NCCL_STEP_SEND_GPU_WAIT && state <= NCCL_STEP_RECV_GPU_WAIT;
    return !(version <= 3 && of_step);
}

static void play_start(struct line *line) {
    struct host_event event = line->event;
    if (nccl_would_skip(line)) {
        events[line->handle].absent = true;
        return;
    }
    event.parent = line->parent ? events[line->parent].handle : NULL;
    event.parent_group = line->group ? events[line->group].handle : NULL;
    if (event.type == NCCL_PROXY_OP && event.pid == own_pid) event.pid = (int)getpid();
    void *handle = line->again ? events[line->again].handle : NULL;
    host_start(&host, line->has_raw ? (void *)line->raw : contexts[line->context], &handle, &event);
    events[line->handle].handle = handle;
    events[line->handle].muted = event.type == NCCL_PROXY_STEP && line->parent && !event.parent;
    count_callback();
}

static void play_update(struct line *line) {
    void *handle = line->has_raw ? (void *)line->raw : events[line->handle].handle;
    if (!handle && !line->has_raw) return;  // NCCL does not report on what it has no handle for
    if (line->callback == STATE && events[line->handle].muted) return;
    if (line->callback == STOP) host_stop(&host, handle);
    else if (line->state == NCCL_NET_UPDATE)
        host_state(&host, handle, line->state, true, (uint64_t)lines[line->arg].event.net_data, 0);
    else host_state(&host, handle, line->state, has_args(line->state), line->arg, line->steps);
    count_callback();
}

static void play_line(struct line *line) {
    switch (line->callback) {
        case INIT:
            host_init(&host, &contexts[line->context], &line->comm);
            count_callback();
            break;
        case START: play_start(line); break;
        case STOP:
        case STATE: play_update(line); break;
        case FINALIZE:
            if (options->end != END_FINALIZE) break;
            host_finalize(&host, contexts[line->context]);
            count_callback();
            break;
    }
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_of[256];
static size_t turn;  // the next line to play
static int64_t time_shift;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void wait_until(int64_t t) {
    for (int64_t left; (left = t - now_ns()) > 0;)
        if (left > 100000)
            nanosleep(&(struct timespec){left / 1000000000, left % 1000000000 - left % 50000},
                      NULL);
}

static void *play_thread(void *argument) {
    int thread = (int)(intptr_t)argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (turn < line_count && lines[turn].thread != thread)
            pthread_cond_wait(&turn_of[thread], &lock);
        if (turn == line_count) break;
        size_t at = turn;
        pthread_mutex_unlock(&lock);
        for (; at < line_count && lines[at].thread == thread;
             at++) {  // as long as it is this thread's turn
            if (options->realtime) wait_until(lines[at].t + time_shift);
            play_line(&lines[at]);
        }
        pthread_mutex_lock(&lock);
        turn = at;
        if (turn < line_count) pthread_cond_signal(&turn_of[lines[turn].thread]);
        else
            for (int i = 0; i < thread_count; i++) pthread_cond_signal(&turn_of[i]);
    }
    pthread_mutex_unlock(&lock);
    host_thread_done();
    return NULL;
}

static void play_once(void) {
    pthread_t threads[256];
    memset(events, 0, (max_handle + 1) * sizeof *events);
    memset(contexts, 0, (max_context + 1) * sizeof *contexts);
    turn = 0;
    if (line_count) time_shift = now_ns() - lines[0].t;
    for (int i = 0; i < thread_count; i++) pthread_cond_init(&turn_of[i], NULL);
    for (int i = 1; i < thread_count; i++)
        pthread_create(&threads[i], NULL, play_thread, (void *)(intptr_t)i);
    play_thread((void *)0);  // the first recorded thread is the process's own
    for (int i = 1; i < thread_count; i++) pthread_join(threads[i], NULL);
}

int play(const struct play_options *chosen) {
    options = chosen;
    if (!read_transcript(options->transcript)) return 1;
    if (!host_load(&host, options->plugin, version)) return 1;
    events = calloc(max_handle + 1, sizeof *events);
    contexts = calloc(max_context + 1, sizeof *contexts);
    for (uint64_t round = 0; round < (options->times ? options->times : 1); round++) play_once();
    if (options->end == END_KILL) kill(getpid(), SIGKILL);
    printf("played %llu callbacks of interface v%d\n", (unsigned long long)callbacks, version);
    return 0;
}
