// The one instance, and whether the fast path is open.
#include "callback_state.h"

struct callback_state callback_state = {.clock = CLOCK_IS_MONOTONIC, .window = 1};

void callback_state_settle(void) {
    callback_state.fast_path = callback_state.clock != CLOCK_IS_MONOTONIC &&
                               !callback_state.chained && callback_state.static_tls;
}
