// NVTX as a program's headers implement it: tables of function pointers that the plugin replaces.
#define _GNU_SOURCE
#include "ranges.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../src/clock.h"
#include "../src/nccl_abi.h"
#include "../src/nvtx_abi.h"
#include "host.h"
#include "random.h"

enum { CORE_SIZE = 16, CORE2_SIZE = 16, PAYLOAD_SIZE = 16, TEXTS = 40000, DOMAINS = 6 };

static nvtx_function core[CORE_SIZE], core2[CORE2_SIZE];
static nvtx_function *core_places[CORE_SIZE], *core2_places[CORE2_SIZE];
static intptr_t payload[PAYLOAD_SIZE];
static u32 injection_version;

static const struct ranges_options *options;
static struct host host;
static void *context;
static void *domains[DOMAINS];
static void *registered[64];
static u64 schemas[2];
static u64 shared_number;  // of a range that any thread may end

// ---- the tables ----
static int module_table(int module, nvtx_function ***table, unsigned *count) {
    if (module != NVTX_MODULE_CORE && module != NVTX_MODULE_CORE2) return 0;
    *table = module == NVTX_MODULE_CORE ? core_places : core2_places;
    *count = CORE_SIZE;
    return 1;
}
static void set_version(u32 version) { injection_version = version; }

static const void *get_table(u32 number) {
    static const struct nvtx_callbacks callbacks = {sizeof callbacks, module_table};
    static const struct nvtx_version version = {sizeof version, 3, 0, set_version};
    if (number == NVTX_TABLE_CALLBACKS) return &callbacks;
    return number == NVTX_TABLE_VERSION ? &version : NULL;
}

static bool inject(const char *plugin) {
    for (int i = 1; i < CORE_SIZE; i++) core_places[i] = &core[i], core2_places[i] = &core2[i];
    void *library = dlopen(plugin, RTLD_LAZY);
    int (*initialize)(nvtx_get_table) = NULL;
    int (*extend)(struct nvtx_extension *) = NULL;
    if (library) {
        *(void **)&initialize = dlsym(library, "InitializeInjectionNvtx2");
        *(void **)&extend = dlsym(library, "InitializeInjectionNvtxExtension");
    }
    struct nvtx_segment segment = {0, PAYLOAD_SIZE, payload};
    struct nvtx_extension extension = {
        3, sizeof extension, NVTX_EXTENSION_PAYLOAD, 0, 1, &segment, NULL, NULL};
    if (initialize && extend && initialize(get_table) && extend(&extension)) return true;
    fprintf(stderr, "%s takes no NVTX\n", plugin);
    return false;
}

#define CORE(number, type) ((type)core[number])
#define CORE2(number, type) ((type)core2[number])
#define PAYLOAD(number, type) ((type)payload[number])
typedef int (*push_a_fn)(const char *);
typedef int (*push_w_fn)(const wchar_t *);
typedef int (*push_ex_fn)(const struct nvtx_attributes *);
typedef int (*pop_fn)(void);
typedef void (*mark_a_fn)(const char *);
typedef void (*mark_w_fn)(const wchar_t *);
typedef u64 (*start_a_fn)(const char *);
typedef void (*end_fn)(u64);
typedef void (*domain_mark_fn)(void *, const struct nvtx_attributes *);
typedef u64 (*domain_start_fn)(void *, const struct nvtx_attributes *);
typedef void (*domain_end_fn)(void *, u64);
typedef int (*domain_push_fn)(void *, const struct nvtx_attributes *);
typedef int (*domain_pop_fn)(void *);
typedef void *(*create_fn)(const char *);
typedef void *(*create_w_fn)(const wchar_t *);
typedef void *(*register_fn)(void *, const char *);
typedef void (*name_fn)(void *, u32, const char *);
typedef u64 (*schema_fn)(void *, const struct nvtx_schema *);
typedef int (*push_payload_fn)(void *, const struct nvtx_payload *, size_t);
typedef void (*end_payload_fn)(void *, u64, const struct nvtx_payload *, size_t);

static void register_all(void) {
    domains[0] = NULL;
    domains[1] = CORE2(NVTX_DOMAIN_CREATE_A, create_fn)("NCCL");
    domains[2] = CORE2(NVTX_DOMAIN_CREATE_A, create_fn)("mine");
    domains[3] = CORE2(NVTX_DOMAIN_CREATE_W, create_w_fn)(L"d\u00f6main");
    domains[4] = (void *)(uintptr_t)0xFFFF;
    domains[5] = (void *)(uintptr_t)-1;
    for (int i = 0; i < 64; i++) {
        char text[32];
        snprintf(text, sizeof text, "registered %d", i);
        registered[i] = CORE2(NVTX_DOMAIN_REGISTER_STRING_A, register_fn)(domains[2], text);
    }
    registered[1] = CORE2(NVTX_DOMAIN_REGISTER_STRING_A, register_fn)(domains[1], "ncclAllReduce");
    registered[0] = (void *)(uintptr_t)-1;
    CORE2(NVTX_DOMAIN_NAME_CATEGORY_A, name_fn)(domains[2], 3, "a category");
    static const struct nvtx_schema_entry entries[] = {
        {.type = 18, .name = "communicator"},
        {.type = 18, .name = "parent", .offset = 8},
        {.type = 5, .name = "color", .offset = 16},
        {.type = 5, .name = "key", .offset = 20},
    };
    struct nvtx_schema schema = {
        .fields = NVTX_SCHEMA_HAS_ENTRIES | NVTX_SCHEMA_HAS_COUNT | NVTX_SCHEMA_HAS_BYTES,
        .entries = entries,
        .count = 4,
        .bytes = 24};
    schemas[0] = PAYLOAD(NVTX_SCHEMA_REGISTER, schema_fn)(domains[2], &schema);
    schema.fields |= NVTX_SCHEMA_HAS_ID;
    schema.id = (1 << 24) + 5;
    schemas[1] = PAYLOAD(NVTX_SCHEMA_REGISTER, schema_fn)(domains[1], &schema);
}

// ---- hostile use ----
// A text that may be new, long, or not UTF-8.
static const char *some_text(uint64_t bits, char *buffer, size_t room) {
    if (bits % 8 == 0) {
        size_t length = bits / 8 % (room - 1);
        memset(buffer, (int)(1 + bits / 64 % 255), length);
        buffer[length] = 0;
        return bits % 64 == 0 ? NULL : buffer;
    }
    u64 number = bits % 8 < 4 ? bits / 8 % 50 : bits / 8 % TEXTS;
    snprintf(buffer, room, "text %llu", (unsigned long long)number);
    return buffer;
}

static void one_call(uint64_t *random) {
    char text[300];
    u64 bits = next_random(random), more = next_random(random);
    void *domain = domains[more % DOMAINS];
    unsigned char bytes[256];
    memset(bytes, (int)more, sizeof bytes);
    struct nvtx_payload data = {bits & 1 ? schemas[more & 1] : next_random(random),
                                more % sizeof bytes, bits % 5 ? bytes : NULL};
    struct nvtx_attributes attributes = {.version = 3,
                                         .bytes = bits % 97 ? sizeof attributes : 7,
                                         .category = (u32)more,
                                         .payload_type = (i32)(bits >> 8 & 15),
                                         .payload = more,
                                         .text_type = (i32)(bits >> 16 & 3)};
    if (attributes.text_type == NVTX_TEXT_ASCII) attributes.text = some_text(more, text, 300);
    else if (attributes.text_type == NVTX_TEXT_WIDE) attributes.text = L"wide \u20ac \U0001F600";
    else attributes.text = registered[more % 64];
    if (bits & 1 << 20) {
        attributes.payload_type = NVTX_PAYLOAD_EXTENDED;
        attributes.payload_count = (i32)(bits >> 24 & 1);
        attributes.payload = (u64)(uintptr_t)&data;
    }
    u64 number = bits & 1 << 21 ? __atomic_load_n(&shared_number, __ATOMIC_RELAXED) : more;
    switch (bits >> 32 & 15) {
        case 0: CORE(NVTX_PUSH_A, push_a_fn)(some_text(more, text, 300)); break;
        case 1: CORE(NVTX_PUSH_W, push_w_fn)(L"plain wide"); break;
        case 2: CORE(NVTX_PUSH_EX, push_ex_fn)(&attributes); break;
        case 3:
        case 4: CORE(NVTX_POP, pop_fn)(); break;
        case 5: CORE(NVTX_MARK_A, mark_a_fn)(some_text(more, text, 300)); break;
        case 6: CORE2(NVTX_DOMAIN_MARK_EX, domain_mark_fn)(domain, &attributes); break;
        case 7:
            number = CORE2(NVTX_DOMAIN_START_EX, domain_start_fn)(domain, &attributes);
            __atomic_store_n(&shared_number, number, __ATOMIC_RELAXED);
            break;
        case 8: CORE2(NVTX_DOMAIN_END, domain_end_fn)(domain, number); break;
        case 9: CORE(NVTX_END, end_fn)(number); break;
        case 10:
        case 11: CORE2(NVTX_DOMAIN_PUSH_EX, domain_push_fn)(domain, &attributes); break;
        case 12:
        case 13: CORE2(NVTX_DOMAIN_POP, domain_pop_fn)(domain); break;
        case 14: PAYLOAD(NVTX_POP_PAYLOAD, push_payload_fn)(domain, &data, bits >> 40 & 1); break;
        default: PAYLOAD(NVTX_END_PAYLOAD, end_payload_fn)(domain, number, &data, 1);
    }
}

static void *fuzz_thread(void *argument) {
    uint64_t random = options->seed * 0x9E3779B97F4A7C15ull + (uint64_t)(intptr_t)argument + 1;
    for (uint64_t calls = 0; calls < options->calls / (uint64_t)options->threads; calls++) {
        one_call(&random);
        if (random % 4) continue;
        void *handle = NULL;
        host_start(&host, context, &handle,
                   &(struct host_event){.type = NCCL_COLL_API,
                                        .func = "AllReduce",
                                        .dtype = "ncclFloat32",
                                        .count = calls});
        host_stop(&host, handle);
    }
    host_thread_done();
    return NULL;
}

int ranges_fuzz(const struct ranges_options *chosen) {
    options = chosen;
    pthread_t threads[64];
    int count = options->threads < 64 ? options->threads : 64;
    if (!inject(options->plugin) || !host_load(&host, options->plugin, options->version)) return 1;
    register_all();
    uint64_t random = options->seed + 1;
    for (int i = 0; i < 1000; i++) one_call(&random);  // before anything is recorded
    host_init(&host, &context, &(struct host_comm){1, "ranges", 1, 2, 0});
    for (intptr_t i = 0; i < count; i++) pthread_create(&threads[i], NULL, fuzz_thread, (void *)i);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    host_finalize(&host, context);
    printf("made %llu NVTX calls\n", (unsigned long long)options->calls);
    return 0;
}

// ---- what a range costs ----
static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

enum { PAIRS = 20000, ROUNDS = 200 };

static struct nvtx_attributes registered_text;
static char short_text[] = "forward8", long_text[61];
static u32 (*range_text)(const char *);
static int (*range_push)(u32, const char *, int), (*range_pop)(void);
static u32 known_text;
static volatile u64 sum;

static void read_clock(void) { sum += clock_counter(); }
static void push_by_number(void) {
    range_push(known_text, NULL, RANGE_RECORD_FUNCTION);
    range_pop();
}
static void push_registered(void) {
    CORE2(NVTX_DOMAIN_PUSH_EX, domain_push_fn)(domains[2], &registered_text);
    CORE2(NVTX_DOMAIN_POP, domain_pop_fn)(domains[2]);
}
static void push_short(void) {
    CORE(NVTX_PUSH_A, push_a_fn)(short_text);
    CORE(NVTX_POP, pop_fn)();
}
static void push_long(void) {
    CORE(NVTX_PUSH_A, push_a_fn)(long_text);
    CORE(NVTX_POP, pop_fn)();
}

static void measure(const char *name, void (*pair)(void)) {
    double best = 1e18;
    for (int round = 0; round < ROUNDS; round++) {
        double before = now_ns();
        for (int i = 0; i < PAIRS; i++) pair();
        double spent = (now_ns() - before) / PAIRS;
        if (spent < best) best = spent;
        nanosleep(&(struct timespec){0, 20000000}, NULL);  // the helper thread drains
    }
    printf("%s %.1f\n", name, best);
}

int ranges_cost(const struct ranges_options *chosen) {
    options = chosen;
    if (!inject(options->plugin) || !host_load(&host, options->plugin, options->version)) return 1;
    *(void **)&range_text = dlsym(host.library, "ncclscope_range_text");
    *(void **)&range_push = dlsym(host.library, "ncclscope_range_push");
    *(void **)&range_pop = dlsym(host.library, "ncclscope_range_pop");
    register_all();
    memset(long_text, 'x', sizeof long_text - 1);
    known_text = range_text("known");
    registered_text = (struct nvtx_attributes){
        .version = 3, .bytes = 48, .text_type = NVTX_TEXT_REGISTERED, .text = registered[5]};
    measure("unrecorded", push_by_number);
    host_init(&host, &context, &(struct host_comm){1, "ranges", 1, 2, 0});
    nanosleep(&(struct timespec){1, 0}, NULL);
    measure("clock", read_clock);
    measure("number", push_by_number);
    measure("registered", push_registered);
    measure("text8", push_short);
    measure("text60", push_long);
    host_finalize(&host, context);
    return 0;
}
