// The capture format's layout as JSON, for the test that holds Python's against it.
#ifndef NCCLSCOPE_LAYOUT_H
#define NCCLSCOPE_LAYOUT_H

int print_layout(void);

#endif
