// Changes of the mode while the job runs, for a while or for good. Helper thread only.
#ifndef NCCLSCOPE_RECORDING_MODE_H
#define NCCLSCOPE_RECORDING_MODE_H

#include "control.h"

// Carries out a request's mode and events, or resets earlier ones.
void recording_mode_apply(const struct control_request *request);
// Resets them when their time is over, or enough calls have been made.
void recording_mode_check_deadline(void);

#endif
