// The recorder's tracker by itself, shown slots in an order that a busy machine can make: a kernel
// whose Coll is met by a later look at the streams. Prints operations done and in flight.
#include <stdio.h>

#include "tracker.c"

u8 comm_versions[NO_COMM];
struct hot hot;
bool comm_is_open(u32 number) { return number == 0; }
bool comm_reports_kernels(u32 number) { return number == 0; }
struct ledger_entry *ledger_entry(struct tally_key key) {
    static struct ledger_entry entry;
    (void)key;
    return &entry;
}
struct tally_key tally_counted_as(struct tally_key key) { return key; }

static const u64 handle = 0x8000000000000001u;

static void meet_kernel(void) {
    union slot slot = {.kernel_ch = {.parent = handle, .t0 = 10, .t1 = 20, .gpu_start = 5}};
    slot.kernel_ch.gpu_stop = 7;
    slot.head = head_word(KIND_kernel_ch, 0, 0, 2);
    slot.kernel_ch.states = STATE_FIRST | STATE_STOPPED;
    tracker_see(2, &slot, true);
}

static void meet_coll(void) {
    union slot slots[2] = {{.coll = {.t0 = 1, .count = 4, .channels = 1}}};
    slots[0].head = head_word(KIND_coll, 0, 0, 1);
    tracker_see(handle, slots, true);
}

int main(int count, char **values) {
    struct clock_pair now = {0};
    comm_versions[0] = 6;
    // k: a kernel is met, c: its Coll, s: all streams were seen, a: a second has passed
    for (const char *step = count > 1 ? values[1] : ""; *step; step++) {
        if (*step == 'k') meet_kernel();
        if (*step == 'c') meet_coll();
        if (*step == 's') tracker_seen_all();
        if (*step == 'a') tracker_age(&now, 1000000000, false);
    }
    union slot out[8];
    size_t used = tracker_live(out, 8);
    printf("%llu done, %zu in flight\n", (unsigned long long)(used ? out[0].live_comm.done : 0),
           used ? used - 1 : 0);
    return 0;
}
