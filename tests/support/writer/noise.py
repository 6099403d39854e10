"""How much real jobs vary from call to call, to be drawn from: their transcripts' own deviations."""

import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ncclscope.analysis.wire_times import wire_times
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.model.build import open_model
from tests.support.player import TRANSCRIPTS
from tests.support.writer.transcript import from_transcript

_TRAINING = "2.28.9-v5-2ranks-ddp-densenet121"
_STEADY = "2.28.9-v5-4ranks-straggler"  # its wire times; who is late is not noise there
_OUTER = 0.06  # left out at each end of the wire times
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """Pools of deviations."""

    lateness: Floats  # of a rank behind the first, as a share of the time between operations
    wire: Floats  # time on the wire over the median of its kind

    def late_ns(self, rng: np.random.Generator, usual_ns: float, shape: tuple[int, ...]) -> Floats:
        """So much later than the first."""
        return rng.choice(self.lateness, shape) * usual_ns

    def factors(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """So many times the median."""
        return rng.choice(self.wire, shape)


@lru_cache(maxsize=1)
def noise_of_transcripts() -> Noise:
    """From a DDP training and from a steady series of AllReduces, on real GPUs."""
    with tempfile.TemporaryDirectory() as directory:
        contexts = {}
        for name in (_TRAINING, _STEADY):
            from_transcript(TRANSCRIPTS / name, Path(directory) / name)
            contexts[name] = RuleContext(open_model(Path(directory) / name))
        instances = contexts[_TRAINING].synchronized
        known = ~np.isnan(instances.own_ns)
        own = np.where(known, instances.own_ns, 1e18)
        first = np.minimum.reduceat(own, instances.first)[instances.group]
        lateness = (own - first)[known] / np.median(own[known])
        relative = [wire_times(c.run, c.synchronized).relative for c in contexts.values()]
        wire = np.exp(np.concatenate(relative))
    # The ranks shared one GPU, partly by turns: what took a whole turn longer is not noise.
    low, high = np.quantile(wire, (_OUTER, 1 - _OUTER))
    return Noise(lateness, wire[(wire >= low) & (wire <= high)])
