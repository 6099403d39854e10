// The tracker, with slots in an order that a busy machine can make.
#include "tracker.h"

#include "comm.h"
#include "test.h"

static const u64 handle = 0x8000000000000001u;

static void visit_kernel(void) {
    union slot slot = {.kernel_ch = {.parent = handle, .t0 = 10, .t1 = 20, .gpu_start = 5}};
    slot.kernel_ch.gpu_stop = 7;
    slot.head = head_word(KIND_kernel_ch, 0, 0, 2);
    slot.kernel_ch.states = STATE_FIRST | STATE_STOPPED;
    tracker_update(2, &slot, true);
}

static void visit_coll(void) {
    union slot slots[2] = {{.coll = {.t0 = 1, .count = 4, .channels = 1}}};
    slots[0].head = head_word(KIND_coll, 0, 0, 1);
    tracker_update(handle, slots, true);
}

// k: a kernel is visited, c: its Coll, s: a pass over all streams has ended, a: a second has
// passed.
static void after(const char *steps, u64 done, u64 in_flight) {
    struct clock_pair now = {0};
    start_recorder(64);
    comm_open(&(struct comm_description){.version = 6, .mask = NCCL_KERNEL_CH, .known = true});
    for (; *steps; steps++) {
        if (*steps == 'k') visit_kernel();
        if (*steps == 'c') visit_coll();
        if (*steps == 's') tracker_pass_done();
        if (*steps == 'a') tracker_expire(&now, 1000000000, false);
    }
    union slot out[8];
    size_t used = tracker_live(out, 8);
    CHECK_EQUAL(used ? out[0].live_comm.done : 0, done);
    CHECK_EQUAL(used ? used - 1 : 0, in_flight);
}

TEST(an_operation_is_done_when_its_kernel_has_stopped) { after("csks", 1, 0); }
TEST(an_operation_without_kernels_is_in_flight) { after("cs", 0, 1); }
TEST(a_kernel_may_come_before_its_collective) { after("ksacs", 1, 0); }
TEST(nothing_is_given_up_before_another_pass) { after("ksaaacs", 1, 0); }
TEST(kernels_of_a_dropped_collective_are_given_up) { after("ksasasacs", 0, 1); }
