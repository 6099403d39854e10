#include "attach.h"
void attach_request(void) {}
