// Prints the lists from which C makes its declarations as JSON: of the capture format, of NCCL's
// interface, and of the compiled loops. tools/generate.py makes Python's declarations from it.
#include "layout.h"

#include <stdio.h>
#include <string.h>

#include "../arrays/arrays.h"
#include "../src/config.h"
#include "../src/nccl_abi.h"
#include "ncclscope/time_buckets.h"

static const char *separator = "";

// Begins an item of the list or object that is open.
static void next(void) {
    printf("%s", separator);
    separator = ",";
}
static void open_with(const char *text) {
    next();
    printf("%s", text);
    separator = "";
}
static void close_with(const char *text) {
    printf("%s", text);
    separator = ",";
}

static void print_string(const char *text) {
    putchar('"');
    for (; *text; text++)
        if (*text == '\n') printf("\\n");
        else if ((unsigned char)*text >= 0x80) printf("\\u%04x", (unsigned char)*text);
        else putchar(*text);
    putchar('"');
}
static void print_member(const char *name, unsigned long long value) {
    next();
    printf("\"%s\":%llu", name, value);
}
static void print_field(const char *name, const char *type, size_t offset, size_t bytes) {
    next();
    printf("[\"%s\",\"%s\",%zu,%zu]", name, type, offset, bytes);
}

// ---- the capture format ----
#define PRINT_FIELD(type, name) print_field(#name, #type, offsetof(STRUCT, name), sizeof(type));
#define PRINT_ARRAY(type, name, length) \
    print_field(#name, #type, offsetof(STRUCT, name), sizeof(type) * (length));

static void print_head(void) {
    typedef union slot STRUCT;
    open_with("\n\"head\":[");
    HEAD_FIELDS(PRINT_FIELD, PRINT_ARRAY)
    close_with("]");
}
// One function per kind, so that STRUCT can name its struct.
#define DEFINE_PRINTER(number, suffix, name, fields)                     \
    static void print_##suffix(void) {                                   \
        typedef struct slot_##suffix STRUCT;                             \
        open_with("\n\"" #name "\":{\"kind\":" #number ",\"fields\":["); \
        fields(PRINT_FIELD, PRINT_ARRAY) close_with("]}");               \
    }
SLOT_KINDS(DEFINE_PRINTER)
static void print_header(void) {
    typedef struct file_header STRUCT;
    open_with("\n\"header\":[");
    FILE_HEADER_FIELDS(PRINT_FIELD, PRINT_ARRAY)
    close_with("]");
}
static void print_times(void) {
    typedef struct times STRUCT;
    open_with("\n\"times\":[");
    TIMES_FIELDS(PRINT_FIELD, PRINT_ARRAY)
    close_with("]");
}

#define PRINT_NUMBER(name) print_member(#name, name);
#define PRINT_CONSTANT(name, value) print_member(#name, value);
#define PRINT_MODE(number, constant, name) \
    next(), printf("[\"" #name "\",%d,%d]", number, constant##_EVENTS);
#define PRINT_TIMING(number, constant, name) next(), printf("[\"" #name "\",%d]", number);
#define PRINT_REASON(constant, name) next(), print_string(name);
#define PRINT_COUNTER(name) next(), print_string(#name);
#define PRINT_ADDED(suffix, kind, field, minor) print_member(#kind "." #field, minor);
#define PRINT_SLOT(number, suffix, name, fields) print_##suffix();

static void print_format(void) {
    open_with("\n\"magic\":");
    print_string(FORMAT_MAGIC);
    separator = ",";
    open_with("\n\"constants\":{");
    FORMAT_NUMBERS(PRINT_NUMBER)
    FORMAT_CONSTANTS(PRINT_CONSTANT)
    close_with("}");
    open_with("\n\"modes\":[");
    MODES(PRINT_MODE)
    close_with("]");
    open_with("\n\"untimed\":[");
    UNTIMED_REASONS(PRINT_REASON)
    close_with("]");
    open_with("\n\"gpu_timings\":[");
    GPU_TIMINGS(PRINT_TIMING)
    close_with("]");
    open_with("\n\"timing_reasons\":[");
    TIMING_REASONS(PRINT_REASON)
    close_with("]");
    open_with("\n\"counters\":[");
    COUNTERS(PRINT_COUNTER)
    close_with("]");
    open_with("\n\"added_fields\":{");
    ADDED_FIELDS(PRINT_ADDED)
    close_with("}");
    print_head();
    print_header();
    print_times();
    open_with("\n\"slots\":{");
    SLOT_KINDS(PRINT_SLOT)
    close_with("}");
    open_with("\n\"schema\":");
    print_string(FORMAT_SCHEMA);
    separator = ",";
}

// ---- NCCL's interface ----
#define PRINT_EVENT(x, bit, constant, name, first, drop) \
    next(), printf("[\"" #name "\",%d]", first);
#define PRINT_STATE(number, constant, name) next(), printf("[%d,\"" #name "\"]", number);
#define PRINT_INTERFACE(version, family, descr, bytes) next(), printf("%d", version);
#define PRINT_FIRST(what, version) print_member(#what, version);

static void print_nccl(void) {
    open_with("\n\"events\":[");
    NCCL_EVENT_LIST(PRINT_EVENT, )
    close_with("]");
    open_with("\n\"states\":[");
    NCCL_STATE_LIST(PRINT_STATE)
    close_with("]");
    open_with("\n\"interfaces\":[");
    NCCL_INTERFACES(PRINT_INTERFACE)
    close_with("]");
    open_with("\n\"first_with\":{");
    NCCL_FIRST_WITH_LIST(PRINT_FIRST)
    close_with("}");
    open_with("\n\"net_data\":{");
    NCCL_NET_DATA(PRINT_FIRST)
    close_with("}");
}

// ---- the compiled loops ----
#define PRINT_TYPE(type, name) next(), printf("[\"" #name "\",\"" #type "\",0]");
#define PRINT_TYPES(type, name, length) next(), printf("[\"" #name "\",\"" #type "\",%d]", length);
#define PRINT_STRUCT(name, fields)              \
    open_with("\n\"" #name "\":{\"fields\":["); \
    fields(PRINT_TYPE, PRINT_TYPES) printf("],\"bytes\":%zu", sizeof(struct name)), close_with("}");
#define PRINT_NAME(name) next(), print_string(#name);
#define PRINT_ENUM(name, constants) \
    open_with("\n\"" #name "\":["); \
    constants(PRINT_NAME) close_with("]");
#define PRINT_FUNCTION(result, name, arguments) \
    next(), printf("\n[\"" #result "\",\"ncclscope_" #name "\",\"" #arguments "\"]");

static void print_arrays(void) {
    open_with("\n\"structs\":{");
    ARRAY_STRUCTS(PRINT_STRUCT)
    close_with("}");
    open_with("\n\"enums\":{");
    ARRAY_ENUMS(PRINT_ENUM)
    close_with("}");
    open_with("\n\"functions\":[");
    ARRAY_FUNCTIONS(PRINT_FUNCTION)
    close_with("]");
    print_member("abi_version", arrays_abi_version());
}

int layout_print(void) {
    open_with("{");
    print_format();
    print_nccl();
    print_arrays();
    close_with("}\n");
    return 0;
}

int layout_print_buckets(void) {
    unsigned long long ns;
    while (scanf("%llu", &ns) == 1) printf("%u\n", time_bucket(ns));
    return 0;
}
