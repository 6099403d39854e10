// Replays of CUDA graphs, counted without NCCL: the first captured launch of each capture puts a
// marker kernel into the graph, which adds one to a counter at each replay. While a job runs, the
// replays of the last millisecond may be missing.
#ifndef NCCLSCOPE_GRAPH_MARKERS_H
#define NCCLSCOPE_GRAPH_MARKERS_H

#include "cuda_driver.h"

// Between cuda_enter and cuda_leave, before a launch into a stream that is captured: CUDA's id of
// the capture; 0: not known.
u64 graph_markers_note_launch(cuda_context context, cuda_stream stream, u32 comm);
// At finalize, and by the helper when the process ends: reads the GPU's counts. `last`: nothing
// will be replayed any more; else this is known only of graphs whose communicator is gone.
void graph_markers_close(bool last, u64 patience_ns);
// Helper, once a second: writes GraphReplays of what has changed, of everything at the end.
void graph_markers_write(bool everything);

#endif
