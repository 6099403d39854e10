// Ranges for C and ctypes: what tests, benchmarks and simulated jobs call. Programs use NVTX.
#include <string.h>

#include "plugin.h"
#include "range.h"

PLUGIN_EXPORT u32 ncclscope_range_text(const char *text);
PLUGIN_EXPORT int ncclscope_range_push(u32 text, const char *unplaced, int source);
PLUGIN_EXPORT int ncclscope_range_pop(void);
PLUGIN_EXPORT void ncclscope_range_mark(u32 text, int source, u64 payload);

u32 ncclscope_range_text(const char *text) {
    return range_text(text, strnlen(text, RANGE_TEXT_BYTES));
}

int ncclscope_range_push(u32 text, const char *unplaced, int source) {
    struct range range = {.text = text, .source = (u8)source};
    if (!text && unplaced) {
        range.unplaced = unplaced;
        range.unplaced_bytes = strnlen(unplaced, RANGE_TEXT_BYTES);
    }
    return range_push(&range, PYTHON_STACK);
}

int ncclscope_range_pop(void) { return range_pop(PYTHON_STACK, NULL); }

// A payload of 0 is none.
void ncclscope_range_mark(u32 text, int source, u64 payload) {
    struct range range = {.text = text, .source = (u8)source};
    if (payload) {
        range.payload_type = PAYLOAD_U64;
        range.payload = &payload;
        range.payload_bytes = sizeof payload;
    }
    range_mark(&range);
}
