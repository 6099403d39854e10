// What C declares from lists, printed for tools and tests.
#ifndef NCCLSCOPE_LAYOUT_H
#define NCCLSCOPE_LAYOUT_H

// The capture format, NCCL's interface and the compiled loops as JSON.
int layout_print(void);
// The histogram bucket of each time in ns on standard input.
int layout_print_buckets(void);

#endif
