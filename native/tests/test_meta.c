// The ring of metadata.
#include "meta.h"

#include "intern.h"
#include "test.h"

static size_t slots_in_ring(void) {
    static union slot slots[META_SLOTS];
    return meta_peek(slots, META_SLOTS);
}

TEST(a_fork_child_leaves_its_parents_metadata_alone) {
    start_recorder(16);
    size_t before = slots_in_ring();
    arena_forget();
    CHECK(intern("a text that nobody has seen") != 0);
    CHECK_EQUAL(slots_in_ring(), before);
}

TEST(metadata_without_an_arena_is_refused) {
    union slot slot = {0};
    CHECK(!meta_append(KIND_sync, &slot));
}
