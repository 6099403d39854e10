// The plugin as an NVTX injection library: ranges and marks of any program, with domains,
// categories, registered strings and payloads, become ranges of the thread that makes them.
//
// Every library that uses NVTX loads this file and hands over its own tables; all get the same
// functions. NVTX comes first: NCCL makes ranges before it loads a profiler. So nothing here starts
// the recorder; what happens before is remembered (range.h).
//
// Nothing that comes back from the program is dereferenced but texts, attributes and payloads that
// it passes with a call; nvtx_registry.h has what it registers.
#define _GNU_SOURCE
#include "nvtx_abi.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nvtx_registry.h"
#include "plugin.h"
#include "range.h"

// NCCLSCOPE_RANGES may be off; names of domains are nvtx_registry.c's.
static bool is_switched_off(void) {
    const char *disabled = getenv("NCCLSCOPE_DISABLE"), *ranges = getenv("NCCLSCOPE_RANGES");
    return (disabled && *disabled && strcmp(disabled, "0") != 0) ||
           (ranges && strcmp(ranges, "off") == 0);
}

// ---- texts ----
static void set_text(struct range *range, const char *text, size_t length) {
    range->text = range_text(text, length);
    if (UNLIKELY(!range->text)) {
        range->unplaced = text;
        range->unplaced_bytes = length;
    }
}

static void set_ascii(struct range *range, const char *text) {
    if (text) set_text(range, text, strnlen(text, RANGE_TEXT_BYTES));
}

// `buffer` must live as long as the range.
static void set_wide(struct range *range, const wchar_t *text, char *buffer) {
    if (text) set_text(range, buffer, nvtx_narrow(text, buffer, RANGE_TEXT_BYTES));
}

static void set_registered(struct range *range, const void *handle) {
    uintptr_t number = (uintptr_t)handle;
    if (LIKELY(number < RANGE_TEXTS)) {
        range->text = (u32)number;
    } else {
        range->unplaced = nvtx_unplaced_text(number, &range->unplaced_bytes);
    }
}

// ---- payloads ----
static void set_payload(struct range *range, u32 domain, const struct nvtx_payload *payloads,
                        size_t count) {
    if (!payloads || count < 1 || count > 1024) return;
    size_t bytes = payloads->bytes;
    u32 schema = nvtx_find_schema(domain, payloads->schema);
    if (bytes == SIZE_MAX) bytes = nvtx_schema_bytes(schema);
    if (!payloads->data || !bytes) return;
    range->payload_type = PAYLOAD_SCHEMA;
    range->schema = schema;
    range->payload = payloads->data;
    range->payload_bytes = bytes < RANGE_PAYLOAD_BYTES ? bytes : RANGE_PAYLOAD_BYTES;
}

static void set_attributes(struct range *range, const struct nvtx_attributes *attributes,
                           char *buffer) {
    if (UNLIKELY(!attributes || attributes->bytes < sizeof *attributes)) return;
    range->category = attributes->category;
    if (attributes->payload_type == NVTX_PAYLOAD_EXTENDED) {
        set_payload(range, range->domain, (const void *)(uintptr_t)attributes->payload,
                    (size_t)attributes->payload_count);
    } else if (attributes->payload_type >= PAYLOAD_U64 &&
               attributes->payload_type <= PAYLOAD_FLOAT) {
        range->payload_type = (u8)attributes->payload_type;
        range->payload = &attributes->payload;
        range->payload_bytes = sizeof attributes->payload;
    }
    if (attributes->text_type == NVTX_TEXT_REGISTERED) set_registered(range, attributes->text);
    else if (attributes->text_type == NVTX_TEXT_ASCII) set_ascii(range, attributes->text);
    else if (attributes->text_type == NVTX_TEXT_WIDE) set_wide(range, attributes->text, buffer);
}

// The range that a call describes. `buffer` has room for a text.
static inline struct range range_of(u32 domain, const struct nvtx_attributes *attributes,
                                    char *buffer) {
    struct range range = {.source = RANGE_NVTX, .domain = (u16)domain};
    set_attributes(&range, attributes, buffer);
    if (UNLIKELY(nvtx_domains[domain].is_nccl))
        range.is_nccl_call = range_text_class(range.text) == CLASS_NCCL_CALL;
    return range;
}

static struct range payload_of(u32 domain, const struct nvtx_payload *payloads, size_t count) {
    struct range range = {.source = RANGE_NVTX, .domain = (u16)domain};
    set_payload(&range, domain, payloads, count);
    return range;
}

// ---- ranges of a domain ----
static int domain_push_ex(void *handle, const struct nvtx_attributes *attributes) {
    char buffer[RANGE_TEXT_BYTES];
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return -1;
    struct range range = range_of(domain, attributes, buffer);
    return range_push(&range, domain);
}
static int domain_pop(void *handle) {
    u32 domain = nvtx_domain_number(handle);
    return domain == MAX_DOMAINS ? -1 : range_pop(domain, NULL);
}
static void domain_mark_ex(void *handle, const struct nvtx_attributes *attributes) {
    char buffer[RANGE_TEXT_BYTES];
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return;
    struct range range = range_of(domain, attributes, buffer);
    range_mark(&range);
}
static u64 domain_start_ex(void *handle, const struct nvtx_attributes *attributes) {
    char buffer[RANGE_TEXT_BYTES];
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return 0;
    struct range range = range_of(domain, attributes, buffer);
    return range_start(&range);
}
static void domain_end(void *handle, u64 number) {
    (void)handle;
    range_end(number, NULL);
}

// ---- the same with payloads alone ----
static int push_payload(void *handle, const struct nvtx_payload *payloads, size_t count) {
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return -1;
    struct range range = payload_of(domain, payloads, count);
    return range_push(&range, domain);
}
static int pop_payload(void *handle, const struct nvtx_payload *payloads, size_t count) {
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return -1;
    struct range range = payload_of(domain, payloads, count);
    return range_pop(domain, &range);
}
static void mark_payload(void *handle, const struct nvtx_payload *payloads, size_t count) {
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return;
    struct range range = payload_of(domain, payloads, count);
    range_mark(&range);
}
static u64 start_payload(void *handle, const struct nvtx_payload *payloads, size_t count) {
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return 0;
    struct range range = payload_of(domain, payloads, count);
    return range_start(&range);
}
static void end_payload(void *handle, u64 number, const struct nvtx_payload *payloads,
                        size_t count) {
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return;
    struct range range = payload_of(domain, payloads, count);
    range_end(number, &range);
}
static u8 domain_is_enabled(void *handle) { return nvtx_domain_number(handle) != MAX_DOMAINS; }

// ---- ranges of no domain ----
static struct range plain(void) { return (struct range){.source = RANGE_NVTX}; }

static int push_ex(const struct nvtx_attributes *attributes) {
    return domain_push_ex(NULL, attributes);
}
static int push_a(const char *text) {
    if (nvtx_domain_number(NULL) == MAX_DOMAINS) return -1;
    struct range range = plain();
    set_ascii(&range, text);
    return range_push(&range, 0);
}
static int push_w(const wchar_t *text) {
    char buffer[RANGE_TEXT_BYTES];
    if (nvtx_domain_number(NULL) == MAX_DOMAINS) return -1;
    struct range range = plain();
    set_wide(&range, text, buffer);
    return range_push(&range, 0);
}
static int pop(void) { return domain_pop(NULL); }
static void mark_ex(const struct nvtx_attributes *attributes) { domain_mark_ex(NULL, attributes); }
static void mark_a(const char *text) {
    if (nvtx_domain_number(NULL) == MAX_DOMAINS) return;
    struct range range = plain();
    set_ascii(&range, text);
    range_mark(&range);
}
static void mark_w(const wchar_t *text) {
    char buffer[RANGE_TEXT_BYTES];
    if (nvtx_domain_number(NULL) == MAX_DOMAINS) return;
    struct range range = plain();
    set_wide(&range, text, buffer);
    range_mark(&range);
}
static u64 start_ex(const struct nvtx_attributes *attributes) {
    return domain_start_ex(NULL, attributes);
}
static u64 start_a(const char *text) {
    if (nvtx_domain_number(NULL) == MAX_DOMAINS) return 0;
    struct range range = plain();
    set_ascii(&range, text);
    return range_start(&range);
}
static u64 start_w(const wchar_t *text) {
    char buffer[RANGE_TEXT_BYTES];
    if (nvtx_domain_number(NULL) == MAX_DOMAINS) return 0;
    struct range range = plain();
    set_wide(&range, text, buffer);
    return range_start(&range);
}
static void end(u64 number) { range_end(number, NULL); }

// ---- injection ----
struct replacement {
    unsigned number;
    nvtx_function function;
};
#define REPLACES(number, function) {number, (nvtx_function)(function)}
static const struct replacement core[] = {
    REPLACES(NVTX_MARK_EX, mark_ex),
    REPLACES(NVTX_MARK_A, mark_a),
    REPLACES(NVTX_MARK_W, mark_w),
    REPLACES(NVTX_START_EX, start_ex),
    REPLACES(NVTX_START_A, start_a),
    REPLACES(NVTX_START_W, start_w),
    REPLACES(NVTX_END, end),
    REPLACES(NVTX_PUSH_EX, push_ex),
    REPLACES(NVTX_PUSH_A, push_a),
    REPLACES(NVTX_PUSH_W, push_w),
    REPLACES(NVTX_POP, pop),
    REPLACES(NVTX_NAME_CATEGORY_A, nvtx_name_category_a),
    REPLACES(NVTX_NAME_CATEGORY_W, nvtx_name_category_w),
};
static const struct replacement core2[] = {
    REPLACES(NVTX_DOMAIN_MARK_EX, domain_mark_ex),
    REPLACES(NVTX_DOMAIN_START_EX, domain_start_ex),
    REPLACES(NVTX_DOMAIN_END, domain_end),
    REPLACES(NVTX_DOMAIN_PUSH_EX, domain_push_ex),
    REPLACES(NVTX_DOMAIN_POP, domain_pop),
    REPLACES(NVTX_DOMAIN_NAME_CATEGORY_A, nvtx_domain_name_category_a),
    REPLACES(NVTX_DOMAIN_NAME_CATEGORY_W, nvtx_domain_name_category_w),
    REPLACES(NVTX_DOMAIN_REGISTER_STRING_A, nvtx_domain_register_string_a),
    REPLACES(NVTX_DOMAIN_REGISTER_STRING_W, nvtx_domain_register_string_w),
    REPLACES(NVTX_DOMAIN_CREATE_A, nvtx_domain_create_a),
    REPLACES(NVTX_DOMAIN_CREATE_W, nvtx_domain_create_w),
};
static const nvtx_function payload_functions[NVTX_PAYLOAD_FUNCTIONS] = {
    [NVTX_SCHEMA_REGISTER] = (nvtx_function)nvtx_register_schema,
    [NVTX_ENUM_REGISTER] = (nvtx_function)nvtx_register_enum,
    [NVTX_MARK_PAYLOAD] = (nvtx_function)mark_payload,
    [NVTX_PUSH_PAYLOAD] = (nvtx_function)push_payload,
    [NVTX_POP_PAYLOAD] = (nvtx_function)pop_payload,
    [NVTX_START_PAYLOAD] = (nvtx_function)start_payload,
    [NVTX_END_PAYLOAD] = (nvtx_function)end_payload,
    [NVTX_DOMAIN_IS_ENABLED] = (nvtx_function)domain_is_enabled,
};

static void replace(const struct nvtx_callbacks *callbacks, int module,
                    const struct replacement *replacements, size_t count) {
    nvtx_function **table;
    unsigned size;
    if (!callbacks->module_table(module, &table, &size)) return;
    for (size_t i = 0; i < count; i++)
        if (replacements[i].number < size && table[replacements[i].number])
            *table[replacements[i].number] = replacements[i].function;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void prepare(void) {
    nvtx_registry_begin();
    range_expect();
}

// Both return 0 where nothing is to be recorded: NVTX then calls nobody.
PLUGIN_EXPORT int InitializeInjectionNvtx2(nvtx_get_table get_table);
PLUGIN_EXPORT int InitializeInjectionNvtxExtension(struct nvtx_extension *extension);

int InitializeInjectionNvtx2(nvtx_get_table get_table) {
    if (is_switched_off() || !get_table) return 0;
    const struct nvtx_callbacks *callbacks = get_table(NVTX_TABLE_CALLBACKS);
    const struct nvtx_version *version = get_table(NVTX_TABLE_VERSION);
    if (!callbacks || callbacks->bytes < sizeof *callbacks) return 0;
    pthread_once(&once, prepare);
    if (version && version->bytes >= sizeof *version && version->set_injection_version)
        version->set_injection_version(3);
    replace(callbacks, NVTX_MODULE_CORE, core, sizeof core / sizeof *core);
    replace(callbacks, NVTX_MODULE_CORE2, core2, sizeof core2 / sizeof *core2);
    return 1;
}

int InitializeInjectionNvtxExtension(struct nvtx_extension *extension) {
    if (is_switched_off() || !extension || extension->bytes < sizeof *extension) return 0;
    if (extension->module != NVTX_EXTENSION_PAYLOAD || extension->segment_count < 1) return 0;
    pthread_once(&once, prepare);
    const struct nvtx_segment *segment = &extension->segments[0];
    for (size_t i = 0; i < NVTX_PAYLOAD_FUNCTIONS && i < segment->count; i++)
        segment->functions[i] = (intptr_t)payload_functions[i];
    return 1;
}
