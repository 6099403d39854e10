// The line itself.
#include "hot.h"

struct hot hot = {.clock = CLOCK_IS_MONOTONIC, .window = 1};
