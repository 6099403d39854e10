"""Whether two jobs were recorded alike: what recording costs would look like a change."""

from collections.abc import Sequence

from ncclscope.capture.housekeeping import identity_of
from ncclscope.model.model import Model


def simulated(models: Sequence[Model]) -> bool:
    """Whether one of them is a simulation."""
    return any(model.completeness.is_simulation for model in models)


def _recorded(models: Sequence[Model]) -> tuple[str, str]:
    """In which modes, and with which timing of the GPU, processes were recorded."""
    modes = {row.mode for model in models for row in model.processes}
    timings = {
        identity_of(model.path / row.folder).get("gpu_timing.in_force", "kernel")
        for model in models
        for row in model.processes
    }
    return ", ".join(sorted(modes)), ", ".join(sorted(timings))


def why_not_comparable(a: Sequence[Model], b: Sequence[Model]) -> str:
    """Why times of the two cannot be compared; "" where they can."""
    of_a, of_b = _recorded(a), _recorded(b)
    for what, first, second in zip(("mode", "GPU timing"), of_a, of_b, strict=True):
        if first != second or ", " in first:
            return (
                f"they were recorded with different settings ({what}: A {first}, B {second}), and "
                "what that costs would look like a change of the job"
            )
    if simulated(a) != simulated(b):
        return "one of them is a simulation"
    return ""
