"""Words that settings of the recorder take; apart from their checks, so that `--help` is quick."""

GPU_TIMINGS = ("auto", "kernel", "sampled", "off")
TORCH_LEVELS = ("steps", "modules")
