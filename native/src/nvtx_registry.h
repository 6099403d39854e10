// What programs register with NVTX: domains, categories, strings and schemas of payloads.
//
// Domains and registered strings are numbers in place of pointers. Registering takes a lock;
// looking up what was registered takes none.
#ifndef NCCLSCOPE_NVTX_REGISTRY_H
#define NCCLSCOPE_NVTX_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

#include "callback_state.h"
#include "nvtx_abi.h"
#include "slot.h"

#define MAX_DOMAINS 256u
#define DOMAIN_NAME_BYTES 64u

struct nvtx_domain {
    char name[DOMAIN_NAME_BYTES];
    bool enabled;
    bool is_nccl;
};
extern HIDDEN struct nvtx_domain nvtx_domains[MAX_DOMAINS];  // 0 is the domain without a name

// Before all others: reads which domains are to be recorded.
void nvtx_registry_begin(void);

// A domain's number; MAX_DOMAINS: it is not recorded.
static inline u32 nvtx_domain_number(const void *domain) {
    uintptr_t number = (uintptr_t)domain;
    bool known = number < MAX_DOMAINS && nvtx_domains[number].enabled;
    return LIKELY(known) ? (u32)number : MAX_DOMAINS;
}

// UTF-8 of a wide text, as much as fits; returns its length.
size_t nvtx_narrow(const wchar_t *wide, char *out, size_t room);

// A registered string that found no place in the table of texts; NULL: there is none of that
// number.
const char *nvtx_unplaced_text(uintptr_t number, size_t *bytes);
// Our number of a schema by the program's; 0: it is not known.
u32 nvtx_find_schema(u32 domain, u64 id);
// The bytes of a payload with this schema; 0: not known.
u32 nvtx_schema_bytes(u32 number);

// Functions of NVTX.
void nvtx_name_category_a(u32 category, const char *name);
void nvtx_name_category_w(u32 category, const wchar_t *name);
void nvtx_domain_name_category_a(void *handle, u32 category, const char *name);
void nvtx_domain_name_category_w(void *handle, u32 category, const wchar_t *name);
void *nvtx_domain_register_string_a(void *handle, const char *text);
void *nvtx_domain_register_string_w(void *handle, const wchar_t *text);
void *nvtx_domain_create_a(const char *name);
void *nvtx_domain_create_w(const wchar_t *name);
u64 nvtx_register_schema(void *handle, const struct nvtx_schema *schema);
u64 nvtx_register_enum(void *handle, const void *attributes);

#endif
