"""Planted faults, and the noise that all jobs have."""

from dataclasses import dataclass
from random import Random

LAST_STEP = 1 << 30
# Quantiles, from 0 to 1 in equal parts, of what real jobs vary by: the pools of
# tests/support/writer/noise.py, taken from transcripts. They are constants here, so that no
# analysis has a part in the truth that it is held against.
_LATENESS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.018, 0.055, 0.14, 0.26, 0.44, 0.67)
_WIRE = (0.78, 0.83, 0.86, 0.89, 0.91, 0.93, 0.96, 0.99, 1.0, 1.01, 1.03, 1.05, 1.1, 1.34, 1.8, 2.1)


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted fault, in steps `first` to `last`, each `every`-th of them.

    | kind | what happens |
    |---|---|
    | `host` | the rank's host does `ms` of other work before its first call of a step |
    | `data` | the same, as a data loader: before the host has anything to launch |
    | `gpu` | the rank's compute kernels take `factor` times as long |
    | `layer` | one compute kernel of a step, number `place`, takes `ms` longer |
    | `launch` | the rank's host takes `ms` longer between each call and its launch |
    | `cpu` | the rank's host takes `ms` longer for each call and for each compute kernel |
    | `transfer` | what goes over the link between `link`'s ranks takes `factor` times as long |
    | `start-up` | the rank makes its first call `ms` late |
    """

    kind: str
    rank: int = -1
    ms: float = 0.0
    factor: float = 1.0
    link: tuple[int, int] = (-1, -1)
    first: int = 0
    last: int = LAST_STEP
    every: int = 1
    place: int = 0
    group: str = ""  # faults of one group are one origin: the ranks of a host, half of all ranks
    masked: bool = False  # hidden behind a larger one: nobody has to name it

    def active(self, step: int) -> bool:
        """Whether the fault acts in a step."""
        return self.first <= step <= self.last and (step - self.first) % self.every == 0


@dataclass(frozen=True, slots=True)
class Noise:
    """How much ranks and wires vary; shares of the mean, and how often something takes long."""

    compute: float = 0.02
    host: float = 0.06
    wire: float = 0.03
    bias: float = 0.004  # of a rank's GPU, for the whole job
    pause_share: float = 0.0  # of steps in which a rank's host pauses
    pause_ms: float = 0.0  # how long, at most
    transcripts: bool = False  # lateness and wire times vary as in the transcripts

    def late_ns(self, rng: Random, usual_ns: float) -> float:
        """A rank's delay in one step; always two draws."""
        share, pause = rng.random(), rng.random()
        late_ns = 0.0
        if self.pause_share and pause < self.pause_share:
            late_ns = share * self.pause_ms * 1e6
        if self.transcripts:
            late_ns += _quantile(_LATENESS, share) * usual_ns
        return late_ns

    def wire_factor(self, rng: Random) -> float:
        """Of one transfer; always two draws."""
        share, deviation = rng.random(), rng.gauss(0, 1)
        if self.transcripts:
            return _quantile(_WIRE, share)
        return max(1 + self.wire * deviation, 0.5)


QUIET = Noise()
USUAL = Noise(compute=0.04, host=0.12, wire=0.06, bias=0.008, pause_share=0.01, pause_ms=1.0)
TRANSCRIPTS = Noise(compute=0.04, host=0.12, transcripts=True)


def _quantile(values: tuple[float, ...], share: float) -> float:
    place = share * (len(values) - 1)
    low = min(int(place), len(values) - 2)
    return values[low] + (values[low + 1] - values[low]) * (place - low)
