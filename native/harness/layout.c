// Prints the capture format's layout as JSON, from the same lists that make the C structs.
#include <stdio.h>

#include "layout.h"
#include "ncclscope/format.h"

static const char *separator;

#define PRINT_FIELD(type, name)                                                        \
    printf("%s[\"" #name "\",\"" #type "\",%zu,%zu]", separator, offsetof(SLOT, name), \
           sizeof(type)),                                                              \
        separator = ",";
#define PRINT_ARRAY(type, name, length)                                                \
    printf("%s[\"" #name "\",\"" #type "\",%zu,%zu]", separator, offsetof(SLOT, name), \
           sizeof(type) * (length)),                                                   \
        separator = ",";

// One function per kind, so that SLOT can name its struct.
#define DEFINE_PRINTER(number, suffix, name, fields)                                           \
    static void print_##suffix(void) {                                                         \
        typedef struct slot_##suffix SLOT;                                                     \
        printf("%s\n\"" #name "\":{\"kind\":%d,\"fields\":[", number == 1 ? "" : ",", number); \
        separator = "";                                                                        \
        HEAD_FIELDS(PRINT_FIELD, PRINT_ARRAY)                                                  \
        fields(PRINT_FIELD, PRINT_ARRAY) printf("]}");                                         \
    }
SLOT_KINDS(DEFINE_PRINTER)
#define PRINT_SLOT(number, suffix, name, fields) print_##suffix();

static void print_header(void) {
    typedef struct file_header SLOT;
    separator = "";
    FILE_HEADER_FIELDS(PRINT_FIELD, PRINT_ARRAY)
}

static void print_times(void) {
    typedef struct times SLOT;
    separator = "";
    TIMES_FIELDS(PRINT_FIELD, PRINT_ARRAY)
}

#define PRINT_COUNTER(name) printf("%s\"" #name "\"", separator), separator = ",";

int print_layout(void) {
    printf("{\"version\":[%d,%d],\"slots\":{", FORMAT_MAJOR, FORMAT_MINOR);
    SLOT_KINDS(PRINT_SLOT)
    printf("},\n\"header\":[");
    print_header();
    printf("],\n\"times\":[");
    print_times();
    printf("],\n\"counters\":[");
    separator = "";
    COUNTERS(PRINT_COUNTER)
    printf("]}\n");
    return 0;
}
