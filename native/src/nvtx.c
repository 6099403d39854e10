// The plugin as an NVTX injection library: ranges and marks of any program, with domains,
// categories, registered strings and payloads, become ranges of the thread that makes them.
//
// Every library that uses NVTX loads this file and hands over its own tables; all get the same
// functions. NVTX comes first: NCCL makes ranges before it loads a profiler. So nothing here starts
// the recorder; what happens before is remembered (range.h).
//
// Domains and registered strings are numbers in place of pointers; nothing that comes back from the
// program is dereferenced but texts, attributes and payloads that it passes with a call.
#define _GNU_SOURCE
#include "nvtx_abi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin.h"
#include "range.h"

#define MAX_DOMAINS 256u
#define DOMAIN_NAME_BYTES 64u
#define MAX_SCHEMAS 1024u
#define SCHEMA_PLACES (2 * MAX_SCHEMAS)
#define SCHEMA_TEXT_BYTES 1024u
#define MAX_SCHEMA_ENTRIES 64u
// Registered strings that found no place in the table of texts; numbers behind those of texts.
#define MAX_UNPLACED 65536u
#define UNPLACED_BYTES 56u  // as much as a RangeText holds

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of registrations only
static struct domain {
    char name[DOMAIN_NAME_BYTES];
    bool enabled;
    bool is_nccl;
} domains[MAX_DOMAINS];
static u32 domain_count = 1;  // 0 is the domain without a name
static u32 category_count;
static char unplaced[MAX_UNPLACED][UNPLACED_BYTES];
static u32 unplaced_count;

// Schemas: what programs call them, by hash, and their sizes by our number.
static struct {
    u64 key;  // domain and the program's id; 0: free
    u32 number;
} schema_places[SCHEMA_PLACES];
static u32 schema_bytes[MAX_SCHEMAS];
static u32 schema_count;  // numbers are from 1

// ---- which domains are recorded: NCCLSCOPE_RANGES is on, off, or names separated by commas ----
static bool is_wanted(const char *name) {
    const char *list = getenv("NCCLSCOPE_RANGES");
    if (!list || !*list || strcmp(list, "on") == 0) return true;
    size_t length = strlen(name);
    for (const char *at = list; *at;) {
        size_t word = strcspn(at, ",");
        if (word == length && strncmp(at, name, length) == 0) return true;
        at += word + (at[word] == ',');
    }
    return false;
}

static bool is_switched_off(void) {
    const char *disabled = getenv("NCCLSCOPE_DISABLE"), *ranges = getenv("NCCLSCOPE_RANGES");
    return (disabled && *disabled && strcmp(disabled, "0") != 0) ||
           (ranges && strcmp(ranges, "off") == 0);
}

// A domain's number; MAX_DOMAINS: it is not recorded.
static u32 domain_number(const void *domain) {
    uintptr_t number = (uintptr_t)domain;
    bool known = number < MAX_DOMAINS && domains[number].enabled;
    return LIKELY(known) ? (u32)number : MAX_DOMAINS;
}

// ---- texts ----
// UTF-8 of a wide text, as much as fits; returns its length.
static size_t narrow(const wchar_t *wide, char *out, size_t room) {
    size_t used = 0;
    for (; *wide && used + 4 <= room; wide++) {
        u32 code = (u32)*wide;
        if (code < 0x80) out[used++] = (char)code;
        else if (code < 0x800) {
            out[used++] = (char)(0xC0 | code >> 6);
            out[used++] = (char)(0x80 | (code & 0x3F));
        } else if (code < 0x10000) {
            out[used++] = (char)(0xE0 | code >> 12);
            out[used++] = (char)(0x80 | (code >> 6 & 0x3F));
            out[used++] = (char)(0x80 | (code & 0x3F));
        } else if (code < 0x110000) {
            out[used++] = (char)(0xF0 | code >> 18);
            out[used++] = (char)(0x80 | (code >> 12 & 0x3F));
            out[used++] = (char)(0x80 | (code >> 6 & 0x3F));
            out[used++] = (char)(0x80 | (code & 0x3F));
        } else out[used++] = '?';
    }
    return used;
}

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
    if (text) set_text(range, buffer, narrow(text, buffer, RANGE_TEXT_BYTES));
}

static void set_registered(struct range *range, const void *handle) {
    uintptr_t number = (uintptr_t)handle;
    if (LIKELY(number < RANGE_TEXTS)) {
        range->text = (u32)number;
    } else if (number - RANGE_TEXTS < __atomic_load_n(&unplaced_count, __ATOMIC_ACQUIRE)) {
        range->unplaced = unplaced[number - RANGE_TEXTS];
        range->unplaced_bytes = strnlen(range->unplaced, UNPLACED_BYTES);
    }
}

// ---- payloads ----
static u64 schema_key(u32 domain, u64 id) {
    return ((u64)domain << 48 | (id & 0xFFFFFFFFFFFF)) + 1;
}

static u32 schema_home(u64 key) { return (u32)((key * 0x9E3779B97F4A7C15u) >> 40); }

static u32 find_schema(u32 domain, u64 id) {
    if (id >= NVTX_FIRST_DYNAMIC_SCHEMA) {
        u64 number = id - NVTX_FIRST_DYNAMIC_SCHEMA;
        return number <= __atomic_load_n(&schema_count, __ATOMIC_ACQUIRE) ? (u32)number : 0;
    }
    u64 key = schema_key(domain, id);
    for (u32 probe = 0; probe < SCHEMA_PLACES; probe++) {
        u32 place = (schema_home(key) + probe) % SCHEMA_PLACES;
        u64 there = __atomic_load_n(&schema_places[place].key, __ATOMIC_ACQUIRE);
        if (there == key) return schema_places[place].number;
        if (there == 0) break;
    }
    return 0;
}

static void set_payload(struct range *range, u32 domain, const struct nvtx_payload *payloads,
                        size_t count) {
    if (!payloads || count < 1 || count > 1024) return;
    size_t bytes = payloads->bytes;
    u32 schema = find_schema(domain, payloads->schema);
    if (bytes == SIZE_MAX) bytes = schema ? schema_bytes[schema - 1] : 0;
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
    if (UNLIKELY(domains[domain].is_nccl))
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
    u32 domain = domain_number(handle);
    if (domain == MAX_DOMAINS) return -1;
    struct range range = range_of(domain, attributes, buffer);
    return range_push(&range, domain);
}
static int domain_pop(void *handle) {
    u32 domain = domain_number(handle);
    return domain == MAX_DOMAINS ? -1 : range_pop(domain, NULL);
}
static void domain_mark_ex(void *handle, const struct nvtx_attributes *attributes) {
    char buffer[RANGE_TEXT_BYTES];
    u32 domain = domain_number(handle);
    if (domain == MAX_DOMAINS) return;
    struct range range = range_of(domain, attributes, buffer);
    range_mark(&range);
}
static u64 domain_start_ex(void *handle, const struct nvtx_attributes *attributes) {
    char buffer[RANGE_TEXT_BYTES];
    u32 domain = domain_number(handle);
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
    u32 domain = domain_number(handle);
    if (domain == MAX_DOMAINS) return -1;
    struct range range = payload_of(domain, payloads, count);
    return range_push(&range, domain);
}
static int pop_payload(void *handle, const struct nvtx_payload *payloads, size_t count) {
    u32 domain = domain_number(handle);
    if (domain == MAX_DOMAINS) return -1;
    struct range range = payload_of(domain, payloads, count);
    return range_pop(domain, &range);
}
static void mark_payload(void *handle, const struct nvtx_payload *payloads, size_t count) {
    u32 domain = domain_number(handle);
    if (domain == MAX_DOMAINS) return;
    struct range range = payload_of(domain, payloads, count);
    range_mark(&range);
}
static u64 start_payload(void *handle, const struct nvtx_payload *payloads, size_t count) {
    u32 domain = domain_number(handle);
    if (domain == MAX_DOMAINS) return 0;
    struct range range = payload_of(domain, payloads, count);
    return range_start(&range);
}
static void end_payload(void *handle, u64 number, const struct nvtx_payload *payloads,
                        size_t count) {
    u32 domain = domain_number(handle);
    if (domain == MAX_DOMAINS) return;
    struct range range = payload_of(domain, payloads, count);
    range_end(number, &range);
}
static u8 domain_is_enabled(void *handle) { return domain_number(handle) != MAX_DOMAINS; }

// ---- ranges of no domain ----
static struct range plain(void) { return (struct range){.source = RANGE_NVTX}; }

static int push_ex(const struct nvtx_attributes *attributes) {
    return domain_push_ex(NULL, attributes);
}
static int push_a(const char *text) {
    if (domain_number(NULL) == MAX_DOMAINS) return -1;
    struct range range = plain();
    set_ascii(&range, text);
    return range_push(&range, 0);
}
static int push_w(const wchar_t *text) {
    char buffer[RANGE_TEXT_BYTES];
    if (domain_number(NULL) == MAX_DOMAINS) return -1;
    struct range range = plain();
    set_wide(&range, text, buffer);
    return range_push(&range, 0);
}
static int pop(void) { return domain_pop(NULL); }
static void mark_ex(const struct nvtx_attributes *attributes) { domain_mark_ex(NULL, attributes); }
static void mark_a(const char *text) {
    if (domain_number(NULL) == MAX_DOMAINS) return;
    struct range range = plain();
    set_ascii(&range, text);
    range_mark(&range);
}
static void mark_w(const wchar_t *text) {
    char buffer[RANGE_TEXT_BYTES];
    if (domain_number(NULL) == MAX_DOMAINS) return;
    struct range range = plain();
    set_wide(&range, text, buffer);
    range_mark(&range);
}
static u64 start_ex(const struct nvtx_attributes *attributes) {
    return domain_start_ex(NULL, attributes);
}
static u64 start_a(const char *text) {
    if (domain_number(NULL) == MAX_DOMAINS) return 0;
    struct range range = plain();
    set_ascii(&range, text);
    return range_start(&range);
}
static u64 start_w(const wchar_t *text) {
    char buffer[RANGE_TEXT_BYTES];
    if (domain_number(NULL) == MAX_DOMAINS) return 0;
    struct range range = plain();
    set_wide(&range, text, buffer);
    return range_start(&range);
}
static void end(u64 number) { range_end(number, NULL); }

// ---- names and registrations ----
static void name_category(const void *handle, u32 category, const char *name, size_t length) {
    char text[DOMAIN_NAME_BYTES + 32];
    u32 domain = domain_number(handle);
    if (domain == MAX_DOMAINS) return;
    int used = snprintf(text, sizeof text, "%u\t%u\t%.*s", domain, category,
                        (int)(length < DOMAIN_NAME_BYTES ? length : DOMAIN_NAME_BYTES), name);
    range_name(TEXT_CATEGORY, __atomic_fetch_add(&category_count, 1, __ATOMIC_RELAXED), text,
               (size_t)used < sizeof text ? (size_t)used : sizeof text - 1);
}
static void domain_name_category_a(void *handle, u32 category, const char *name) {
    if (name) name_category(handle, category, name, strnlen(name, DOMAIN_NAME_BYTES));
}
static void domain_name_category_w(void *handle, u32 category, const wchar_t *name) {
    char buffer[DOMAIN_NAME_BYTES];
    if (name) name_category(handle, category, buffer, narrow(name, buffer, sizeof buffer));
}
static void name_category_a(u32 category, const char *name) {
    domain_name_category_a(NULL, category, name);
}
static void name_category_w(u32 category, const wchar_t *name) {
    domain_name_category_w(NULL, category, name);
}

static void *register_string(const char *text, size_t length) {
    uintptr_t number = range_text(text, length);
    if (number) return (void *)number;
    pthread_mutex_lock(&lock);
    if (unplaced_count < MAX_UNPLACED) {
        char *copy = unplaced[unplaced_count];
        memcpy(copy, text, length < UNPLACED_BYTES ? length : UNPLACED_BYTES);
        number = RANGE_TEXTS + unplaced_count;
        __atomic_store_n(&unplaced_count, unplaced_count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return (void *)number;
}
static void *domain_register_string_a(void *handle, const char *text) {
    (void)handle;
    return text ? register_string(text, strnlen(text, RANGE_TEXT_BYTES)) : NULL;
}
static void *domain_register_string_w(void *handle, const wchar_t *text) {
    (void)handle;
    char buffer[RANGE_TEXT_BYTES];
    return text ? register_string(buffer, narrow(text, buffer, sizeof buffer)) : NULL;
}

// The same name is the same domain: each library creates its own.
static void *create_domain(const char *name, size_t length) {
    char text[DOMAIN_NAME_BYTES] = "";
    memcpy(text, name, length < sizeof text ? length : sizeof text - 1);
    pthread_mutex_lock(&lock);
    u32 number = 1;
    while (number < domain_count && strcmp(domains[number].name, text) != 0) number++;
    bool is_new = number == domain_count && number < MAX_DOMAINS;
    if (is_new) {
        memcpy(domains[number].name, text, sizeof text);
        domains[number].is_nccl = strcmp(text, "NCCL") == 0;
        domains[number].enabled = is_wanted(text);
        domain_count++;
    }
    pthread_mutex_unlock(&lock);
    if (is_new && domains[number].enabled)
        range_name(TEXT_DOMAIN, number, text, strnlen(text, sizeof text));
    return (void *)(uintptr_t)number;  // MAX_DOMAINS and above are not recorded
}
static void *domain_create_a(const char *name) {
    return create_domain(name ? name : "", name ? strnlen(name, DOMAIN_NAME_BYTES) : 0);
}
static void *domain_create_w(const wchar_t *name) {
    char buffer[DOMAIN_NAME_BYTES];
    return create_domain(buffer, name ? narrow(name, buffer, sizeof buffer) : 0);
}

// A line for each field: name, type, offset.
static size_t describe_schema(const struct nvtx_schema *schema, char *text, size_t room) {
    size_t used = 0;
    u64 needed = NVTX_SCHEMA_HAS_ENTRIES | NVTX_SCHEMA_HAS_COUNT;
    if ((schema->fields & needed) != needed || !schema->entries) return 0;
    for (size_t i = 0; i < schema->count && i < MAX_SCHEMA_ENTRIES; i++) {
        const struct nvtx_schema_entry *entry = &schema->entries[i];
        int more = snprintf(text + used, room - used, "%.60s\t%llu\t%llu\n",
                            entry->name ? entry->name : "", (unsigned long long)entry->type,
                            (unsigned long long)entry->offset);
        if (more < 0 || (size_t)more >= room - used) break;
        used += (size_t)more;
    }
    return used;
}

static void place_schema(u64 key, u32 number) {
    for (u32 probe = 0; probe < SCHEMA_PLACES; probe++) {
        u32 place = (schema_home(key) + probe) % SCHEMA_PLACES;
        if (schema_places[place].key && schema_places[place].key != key) continue;
        schema_places[place].number = number;
        __atomic_store_n(&schema_places[place].key, key, __ATOMIC_RELEASE);
        return;
    }
}

static u64 register_schema(void *handle, const struct nvtx_schema *schema) {
    char text[SCHEMA_TEXT_BYTES];
    u32 domain = domain_number(handle), number = 0;
    if (!schema || domain == MAX_DOMAINS) return 0;
    u64 id = schema->fields & NVTX_SCHEMA_HAS_ID ? schema->id : 0;
    pthread_mutex_lock(&lock);
    bool is_known = id && find_schema(domain, id);
    if (!is_known && schema_count < MAX_SCHEMAS) {
        number = schema_count + 1;
        schema_bytes[number - 1] =
            schema->fields & NVTX_SCHEMA_HAS_BYTES && schema->bytes < UINT32_MAX
                ? (u32)schema->bytes
                : 0;
        __atomic_store_n(&schema_count, number, __ATOMIC_RELEASE);
        if (id) place_schema(schema_key(domain, id), number);
    }
    pthread_mutex_unlock(&lock);
    if (number) range_name(TEXT_SCHEMA, number, text, describe_schema(schema, text, sizeof text));
    return id ? id : NVTX_FIRST_DYNAMIC_SCHEMA + number;
}

// What numbers of an enumeration mean is not recorded.
static u64 register_enum(void *handle, const void *attributes) {
    (void)handle, (void)attributes;
    return NVTX_FIRST_DYNAMIC_SCHEMA;
}

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
    REPLACES(NVTX_NAME_CATEGORY_A, name_category_a),
    REPLACES(NVTX_NAME_CATEGORY_W, name_category_w),
};
static const struct replacement core2[] = {
    REPLACES(NVTX_DOMAIN_MARK_EX, domain_mark_ex),
    REPLACES(NVTX_DOMAIN_START_EX, domain_start_ex),
    REPLACES(NVTX_DOMAIN_END, domain_end),
    REPLACES(NVTX_DOMAIN_PUSH_EX, domain_push_ex),
    REPLACES(NVTX_DOMAIN_POP, domain_pop),
    REPLACES(NVTX_DOMAIN_NAME_CATEGORY_A, domain_name_category_a),
    REPLACES(NVTX_DOMAIN_NAME_CATEGORY_W, domain_name_category_w),
    REPLACES(NVTX_DOMAIN_REGISTER_STRING_A, domain_register_string_a),
    REPLACES(NVTX_DOMAIN_REGISTER_STRING_W, domain_register_string_w),
    REPLACES(NVTX_DOMAIN_CREATE_A, domain_create_a),
    REPLACES(NVTX_DOMAIN_CREATE_W, domain_create_w),
};
static const nvtx_function payload_functions[NVTX_PAYLOAD_FUNCTIONS] = {
    [NVTX_SCHEMA_REGISTER] = (nvtx_function)register_schema,
    [NVTX_ENUM_REGISTER] = (nvtx_function)register_enum,
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
    domains[0].enabled = is_wanted("default");
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
