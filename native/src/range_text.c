// The table of texts, and the list of names.
#include "range_text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "meta.h"

#define NUMBER_BITS 14
#define NUMBER_MASK ((1u << NUMBER_BITS) - 1)
#define PLACES (2 * RANGE_TEXTS)
#define PROBES 16u
#define MAX_NAMES 2048u
#define MAX_NAME_BYTES 4096u
_Static_assert(RANGE_TEXTS == 1u << NUMBER_BITS, "numbers fill their bits");

static struct text {
    u8 length, class, ready, announced;
    char bytes[RANGE_TEXT_BYTES];
} texts[RANGE_TEXTS];
static u32 text_count = 1;  // number 0 means none

// By hash: the hash's upper bits, and the number of the text.
static u64 places[PLACES];

static struct name {
    enum text_owner what;
    u16 owner, length;
    char *text;
} names[MAX_NAMES];
static u32 name_count;
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

// ---- hash: every eight bytes are multiplied into 128 bits, of which both halves are kept ----
static inline u64 load(const char *from, size_t bytes) {
    u64 word = 0;
    memcpy(&word, from, bytes);
    return word;
}

static inline u64 fold(u64 a, u64 b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (u64)product ^ (u64)(product >> 64);
}

static inline u64 text_hash(const char *text, size_t length) {
    const u64 odd = 0xD6E8FEB86659FD93u;
    u64 hash = length * 0xA0761D6478BD642Fu + odd;
    if (length >= 8) {
        size_t at = 0;
        for (; at + 8 <= length; at += 8) hash = fold(hash ^ load(text + at, 8), odd);
        return fold(hash ^ load(text + length - 8, 8), odd);  // the last eight, maybe once more
    }
    u64 word = 0;
    if (length >= 4) word = load(text, 4) | load(text + length - 4, 4) << 32;
    else if (length)
        word = (u64)(u8)text[0] | (u64)(u8)text[length / 2] << 8 | (u64)(u8)text[length - 1] << 16;
    return fold(hash ^ word, odd);
}

// ---- what a text is about ----
static bool begins_with(const char *text, size_t length, const char *start) {
    size_t bytes = strlen(start);
    return length >= bytes && memcmp(text, start, bytes) == 0;
}

static bool is_text(const char *text, size_t length, const char *other) {
    return length == strlen(other) && memcmp(text, other, length) == 0;
}

static enum text_class class_of(const char *text, size_t length) {
    static const struct {
        const char *start;
        enum text_class class;
    } beginnings[] = {
        {"Optimizer.step#", CLASS_OPTIMIZER},
        {"enumerate(DataLoader)#", CLASS_DATA},
        {"DistributedDataParallel.forward", CLASS_FORWARD},
        {"FullyShardedDataParallel.forward", CLASS_FORWARD},
        {"autograd.backward", CLASS_BACKWARD},
        {"pipeline.forward", CLASS_FORWARD},
        {"pipeline.backward", CLASS_BACKWARD},
    };
    static const char *const calls[] = {
        "AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Bcast",   "Reduce",     "Send",
        "Recv",      "AlltoAll",  "AllToAll",      "Gather",    "Scatter", "GroupStart", "GroupEnd",
    };
    if (is_text(text, length, "ncclscope.step")) return CLASS_STEP;
    if (is_text(text, length, "ncclscope.tokens")) return CLASS_TOKENS;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (begins_with(text, length, beginnings[i].start)) return beginnings[i].class;
    size_t prefix = begins_with(text, length, "nccl") ? 4 : 0;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (is_text(text + prefix, length - prefix, calls[i])) return CLASS_NCCL_CALL;
    return CLASS_OTHER;
}

// ---- into the metadata ----
static bool slots_are_kept(void) {
    return __atomic_load_n(&callback_state.ranges, __ATOMIC_ACQUIRE) == RANGES_RECORDED &&
           (config.mode != MODE_PROFILE || config.ring_bytes);
}

// False: there is no room for it now.
static bool announce(u32 number) {
    struct text *text = &texts[number];
    if (__atomic_exchange_n(&text->announced, 1, __ATOMIC_ACQ_REL)) return true;
    if (meta_has_spare_room()) {
        meta_text(TEXT_RANGE, number, text->bytes, text->length);
        return true;
    }
    __atomic_store_n(&text->announced, 0, __ATOMIC_RELEASE);
    return false;
}

static bool announce_texts(void) {
    static u32 first = 1;  // all before it are in the metadata
    u32 count = __atomic_load_n(&text_count, __ATOMIC_ACQUIRE);
    while (first < count && first < RANGE_TEXTS) {
        if (!__atomic_load_n(&texts[first].ready, __ATOMIC_ACQUIRE) || !announce(first))
            return false;
        first++;
    }
    return true;
}

static bool announce_names(void) {
    static u32 first;  // as above
    if (first == __atomic_load_n(&name_count, __ATOMIC_ACQUIRE)) return true;
    pthread_mutex_lock(&names_lock);
    for (; first < name_count && meta_has_spare_room(); first++)
        meta_text(names[first].what, names[first].owner, names[first].text, names[first].length);
    bool done = first == name_count;
    pthread_mutex_unlock(&names_lock);
    return done;
}

bool range_text_announce(u32 wanted) {
    if (wanted && wanted < RANGE_TEXTS) announce(wanted);
    return !slots_are_kept() || (announce_names() && announce_texts());
}

// ---- the table ----
static u32 add_text(const char *text, size_t length) {
    if (__atomic_load_n(&text_count, __ATOMIC_RELAXED) >= RANGE_TEXTS) return 0;
    u32 number = __atomic_fetch_add(&text_count, 1, __ATOMIC_ACQ_REL);
    if (number >= RANGE_TEXTS) {
        __atomic_store_n(&text_count, RANGE_TEXTS, __ATOMIC_RELEASE);
        return 0;
    }
    struct text *made = &texts[number];
    made->length = (u8)length;
    made->class = (u8)class_of(text, length);
    memcpy(made->bytes, text, length);
    __atomic_store_n(&made->ready, 1, __ATOMIC_RELEASE);
    if (slots_are_kept()) announce(number);
    return number;
}

static bool holds(u64 entry, u64 hash, const char *text, size_t length) {
    if ((entry ^ hash) >> NUMBER_BITS) return false;
    const struct text *known = &texts[entry & NUMBER_MASK];
    return known->length == length && memcmp(known->bytes, text, length) == 0;
}

// Two threads may give one text two numbers; both lead to the same text.
u32 range_text(const char *text, size_t length) {
    if (length > RANGE_TEXT_BYTES) length = RANGE_TEXT_BYTES;
    u64 hash = text_hash(text, length);
    u32 number = 0;
    for (u32 probe = 0; probe < PROBES; probe++) {
        u64 *place = &places[((hash >> 40) + probe) % PLACES];
        u64 entry = __atomic_load_n(place, __ATOMIC_ACQUIRE);
        if (entry == 0) {
            if (!number) number = add_text(text, length);
            if (!number) return 0;
            u64 made = (hash & ~(u64)NUMBER_MASK) | number;
            if (__atomic_compare_exchange_n(place, &entry, made, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_ACQUIRE))
                return number;
        }
        if (holds(entry, hash, text, length)) return (u32)(entry & NUMBER_MASK);
    }
    return number;
}

enum text_class range_text_class(u32 number) {
    return number < RANGE_TEXTS ? texts[number].class : CLASS_OTHER;
}

void range_name(enum text_owner what, unsigned owner, const char *text, size_t length) {
    if (length > MAX_NAME_BYTES) length = MAX_NAME_BYTES;
    char *copy = malloc(length + 1);
    if (!copy) return;
    memcpy(copy, text, length);
    pthread_mutex_lock(&names_lock);
    if (name_count < MAX_NAMES) {
        names[name_count] = (struct name){what, (u16)owner, (u16)length, copy};
        __atomic_store_n(&name_count, name_count + 1, __ATOMIC_RELEASE);
        copy = NULL;
    }
    pthread_mutex_unlock(&names_lock);
    free(copy);
}
