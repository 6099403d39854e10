// Tables of fixed size: what does not fit is recorded without a name.
#define _GNU_SOURCE
#include "nvtx_registry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "range.h"

#define MAX_SCHEMAS 1024u
#define SCHEMA_PLACES (2 * MAX_SCHEMAS)
#define SCHEMA_TEXT_BYTES 1024u
#define MAX_SCHEMA_ENTRIES 64u
// Registered strings that found no place in the table of texts; numbers behind those of texts.
#define MAX_UNPLACED 65536u
#define UNPLACED_BYTES 56u  // as much as a RangeText holds

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of registrations only
struct nvtx_domain nvtx_domains[MAX_DOMAINS];
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

// Whether a domain is recorded: NCCLSCOPE_RANGES is on, off, or names separated by commas.
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

void nvtx_registry_begin(void) { nvtx_domains[0].enabled = is_wanted("default"); }

size_t nvtx_narrow(const wchar_t *wide, char *out, size_t room) {
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

// ---- names, strings and domains ----
static void name_category(const void *handle, u32 category, const char *name, size_t length) {
    char text[DOMAIN_NAME_BYTES + 32];
    u32 domain = nvtx_domain_number(handle);
    if (domain == MAX_DOMAINS) return;
    int used = snprintf(text, sizeof text, "%u\t%u\t%.*s", domain, category,
                        (int)(length < DOMAIN_NAME_BYTES ? length : DOMAIN_NAME_BYTES), name);
    range_name(TEXT_CATEGORY, __atomic_fetch_add(&category_count, 1, __ATOMIC_RELAXED), text,
               (size_t)used < sizeof text ? (size_t)used : sizeof text - 1);
}
void nvtx_domain_name_category_a(void *handle, u32 category, const char *name) {
    if (name) name_category(handle, category, name, strnlen(name, DOMAIN_NAME_BYTES));
}
void nvtx_domain_name_category_w(void *handle, u32 category, const wchar_t *name) {
    char buffer[DOMAIN_NAME_BYTES];
    if (name) name_category(handle, category, buffer, nvtx_narrow(name, buffer, sizeof buffer));
}
void nvtx_name_category_a(u32 category, const char *name) {
    nvtx_domain_name_category_a(NULL, category, name);
}
void nvtx_name_category_w(u32 category, const wchar_t *name) {
    nvtx_domain_name_category_w(NULL, category, name);
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
void *nvtx_domain_register_string_a(void *handle, const char *text) {
    (void)handle;
    return text ? register_string(text, strnlen(text, RANGE_TEXT_BYTES)) : NULL;
}
void *nvtx_domain_register_string_w(void *handle, const wchar_t *text) {
    (void)handle;
    char buffer[RANGE_TEXT_BYTES];
    return text ? register_string(buffer, nvtx_narrow(text, buffer, sizeof buffer)) : NULL;
}

// The same name is the same domain: each library creates its own.
static void *create_domain(const char *name, size_t length) {
    char text[DOMAIN_NAME_BYTES] = "";
    memcpy(text, name, length < sizeof text ? length : sizeof text - 1);
    pthread_mutex_lock(&lock);
    u32 number = 1;
    while (number < domain_count && strcmp(nvtx_domains[number].name, text) != 0) number++;
    bool is_new = number == domain_count && number < MAX_DOMAINS;
    if (is_new) {
        memcpy(nvtx_domains[number].name, text, sizeof text);
        nvtx_domains[number].is_nccl = strcmp(text, "NCCL") == 0;
        nvtx_domains[number].enabled = is_wanted(text);
        domain_count++;
    }
    pthread_mutex_unlock(&lock);
    if (is_new && nvtx_domains[number].enabled)
        range_name(TEXT_DOMAIN, number, text, strnlen(text, sizeof text));
    return (void *)(uintptr_t)number;  // MAX_DOMAINS and above are not recorded
}
void *nvtx_domain_create_a(const char *name) {
    return create_domain(name ? name : "", name ? strnlen(name, DOMAIN_NAME_BYTES) : 0);
}
void *nvtx_domain_create_w(const wchar_t *name) {
    char buffer[DOMAIN_NAME_BYTES];
    return create_domain(buffer, name ? nvtx_narrow(name, buffer, sizeof buffer) : 0);
}

const char *nvtx_unplaced_text(uintptr_t number, size_t *bytes) {
    u32 count = __atomic_load_n(&unplaced_count, __ATOMIC_ACQUIRE);
    if (number < RANGE_TEXTS || number - RANGE_TEXTS >= count) return NULL;
    const char *text = unplaced[number - RANGE_TEXTS];
    *bytes = strnlen(text, UNPLACED_BYTES);
    return text;
}

// ---- schemas of payloads ----
static u64 schema_key(u32 domain, u64 id) {
    return ((u64)domain << 48 | (id & 0xFFFFFFFFFFFF)) + 1;
}

static u32 schema_home(u64 key) { return (u32)((key * 0x9E3779B97F4A7C15u) >> 40); }

u32 nvtx_find_schema(u32 domain, u64 id) {
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

u32 nvtx_schema_bytes(u32 number) { return number ? schema_bytes[number - 1] : 0; }

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

u64 nvtx_register_schema(void *handle, const struct nvtx_schema *schema) {
    char text[SCHEMA_TEXT_BYTES];
    u32 domain = nvtx_domain_number(handle), number = 0;
    if (!schema || domain == MAX_DOMAINS) return 0;
    u64 id = schema->fields & NVTX_SCHEMA_HAS_ID ? schema->id : 0;
    pthread_mutex_lock(&lock);
    bool is_known = id && nvtx_find_schema(domain, id);
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
u64 nvtx_register_enum(void *handle, const void *attributes) {
    (void)handle, (void)attributes;
    return NVTX_FIRST_DYNAMIC_SCHEMA;
}
