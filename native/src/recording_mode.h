// What is recorded, changed from outside while the job runs, for a while or for good. Helper thread
// only.
#ifndef NCCLSCOPE_ZOOM_H
#define NCCLSCOPE_ZOOM_H

#include "control.h"

// Carries out a request's mode and events, or takes earlier ones back.
void zoom_obey(const struct control_request *request);
// Takes them back when their time is over, or as many calls have been made.
void zoom_look_at_the_clock(void);

#endif
