// NVTX version 3 as its headers call an injection library: declarations of our own, from the facts
// of nvtxTypes.h, nvToolsExt.h, nvtxExtTypes.h and nvToolsExtPayload.h.
//
// A library or program that uses NVTX loads the file that NVTX_INJECTION64_PATH names at its first
// NVTX call and lets it replace function pointers, by number, in tables of modules.
#ifndef NCCLSCOPE_NVTX_ABI_H
#define NCCLSCOPE_NVTX_ABI_H

#include <stddef.h>
#include <wchar.h>

#include "ncclscope/format.h"

typedef void (*nvtx_function)(void);

// ---- tables of functions ----
enum { NVTX_TABLE_CALLBACKS = 1, NVTX_TABLE_VERSION = 3 };
enum { NVTX_MODULE_CORE = 1, NVTX_MODULE_CORE2 = 5, NVTX_EXTENSION_PAYLOAD = 2 };

struct nvtx_callbacks {
    size_t bytes;
    int (*module_table)(int module, nvtx_function ***table, unsigned *count);
};
struct nvtx_version {
    size_t bytes;
    u32 version, reserved;
    void (*set_injection_version)(u32 version);
};
typedef const void *(*nvtx_get_table)(u32 number);

enum nvtx_core {
    NVTX_MARK_EX = 1,
    NVTX_MARK_A,
    NVTX_MARK_W,
    NVTX_START_EX,
    NVTX_START_A,
    NVTX_START_W,
    NVTX_END,
    NVTX_PUSH_EX,
    NVTX_PUSH_A,
    NVTX_PUSH_W,
    NVTX_POP,
    NVTX_NAME_CATEGORY_A,
    NVTX_NAME_CATEGORY_W,
};
enum nvtx_core2 {
    NVTX_DOMAIN_MARK_EX = 1,
    NVTX_DOMAIN_START_EX,
    NVTX_DOMAIN_END,
    NVTX_DOMAIN_PUSH_EX,
    NVTX_DOMAIN_POP,
    NVTX_DOMAIN_NAME_CATEGORY_A = 8,
    NVTX_DOMAIN_NAME_CATEGORY_W,
    NVTX_DOMAIN_REGISTER_STRING_A,
    NVTX_DOMAIN_REGISTER_STRING_W,
    NVTX_DOMAIN_CREATE_A,
    NVTX_DOMAIN_CREATE_W,
};
enum nvtx_payload_function {
    NVTX_SCHEMA_REGISTER,
    NVTX_ENUM_REGISTER,
    NVTX_MARK_PAYLOAD,
    NVTX_PUSH_PAYLOAD,
    NVTX_POP_PAYLOAD,
    NVTX_START_PAYLOAD,
    NVTX_END_PAYLOAD,
    NVTX_DOMAIN_IS_ENABLED,
    NVTX_PAYLOAD_FUNCTIONS,
};

// ---- events ----
enum { NVTX_TEXT_ASCII = 1, NVTX_TEXT_WIDE = 2, NVTX_TEXT_REGISTERED = 3 };
#define NVTX_PAYLOAD_EXTENDED ((i32)0xDFBD0009)

struct nvtx_attributes {
    u16 version, bytes;
    u32 category;
    i32 color_type;
    u32 color;
    i32 payload_type;
    i32 payload_count;  // of extended payloads
    u64 payload;        // a value, or the address of extended payloads
    i32 text_type;
    i32 reserved;
    const void *text;
};
_Static_assert(sizeof(struct nvtx_attributes) == 48, "nvtxEventAttributes_v2");
_Static_assert(offsetof(struct nvtx_attributes, payload) == 24, "payload");
_Static_assert(offsetof(struct nvtx_attributes, text) == 40, "message");

struct nvtx_payload {
    u64 schema;
    size_t bytes;  // SIZE_MAX: as the schema says
    const void *data;
};

// ---- schemas of payloads ----
struct nvtx_schema_entry {
    u64 flags, type;
    const char *name, *description;
    u64 array_or_union, offset;
    const void *semantics, *reserved;
};
_Static_assert(sizeof(struct nvtx_schema_entry) == 64, "nvtxPayloadSchemaEntry_v1");

enum {
    NVTX_SCHEMA_HAS_ENTRIES = 1 << 4,
    NVTX_SCHEMA_HAS_COUNT = 1 << 5,
    NVTX_SCHEMA_HAS_BYTES = 1 << 6,
    NVTX_SCHEMA_HAS_ID = 1 << 8,
};
struct nvtx_schema {
    u64 fields;  // NVTX_SCHEMA_HAS_…: which of those below are set
    const char *name;
    u64 type, flags;
    const struct nvtx_schema_entry *entries;
    size_t count, bytes, alignment;
    u64 id;
    void *extension;
};
#define NVTX_FIRST_DYNAMIC_SCHEMA (1ull << 32)

// ---- extensions ----
struct nvtx_segment {
    size_t number, count;
    intptr_t *functions;
};
struct nvtx_extension {
    u16 version, bytes, module, compatibility;
    size_t segment_count;
    struct nvtx_segment *segments;
    intptr_t (*get_function)(u32 number);
    const void *information;
};

#endif
