// The line itself.
#include "callback_state.h"

struct hot hot = {.clock = CLOCK_IS_MONOTONIC, .window = 1};

void hot_settle(void) {
    hot.usual = hot.clock != CLOCK_IS_MONOTONIC && !hot.chained && hot.pens_are_near;
}
