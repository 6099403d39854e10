// Texts of ranges as numbers, and other names that ranges refer to.
//
// Texts are told apart by their content: PyTorch passes one address with ever new texts. Looking up
// a text that is known takes no lock and writes nothing. Texts come before the recorder starts
// (NVTX registers strings first), so the table is memory of its own; what the capture needs of it
// goes to the metadata when recording has begun.
#ifndef NCCLSCOPE_RANGE_TEXT_H
#define NCCLSCOPE_RANGE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "callback_state.h"

#define RANGE_TEXTS 16384u  // numbers are 1 to RANGE_TEXTS - 1
#define RANGE_TEXT_BYTES 120u

// What a text says to the recorder itself.
enum text_class {
    CLASS_OTHER,
    CLASS_STEP,
    CLASS_TOKENS,
    CLASS_DATA,
    CLASS_FORWARD,
    CLASS_BACKWARD,
    CLASS_OPTIMIZER,
    CLASS_NCCL_CALL,  // a function of NCCL that newer interfaces report as an event
};

// A text's number; what is longer than RANGE_TEXT_BYTES is cut. 0: there is no room for it.
u32 range_text(const char *text, size_t length);
enum text_class range_text_class(u32 number);

// A domain, schema or category. Copied; not for the hot path.
void range_name(enum text_owner what, unsigned owner, const char *text, size_t length);

// Helper thread: puts into the metadata what is not there yet, while its ring has room; false: some
// is left. In profile mode there are no ranges to name: only the text `wanted` is put there (0:
// none).
bool range_text_announce(u32 wanted);

#endif
