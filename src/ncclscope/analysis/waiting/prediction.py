"""What a run and its steps would take with a change: a number, or from when to when."""

from dataclasses import dataclass, replace

SURE = 0.05  # of the time: a prediction with a larger error is a range, and no number


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long the run and its steps took, and would take."""

    run_now_ns: int
    run_then_ns: int
    step_now_ns: int | None  # None where calls do not repeat
    step_then_ns: int | None  # None as well where only a range of the run is known
    error_ns: int  # of `run_then_ns`
    hidden_ns: int = 0  # of that, because work is hidden behind waiting in every step
    start_up_ns: int = 0  # of both runs
    noise_ns: int = 0  # of the error: a gain of no more than that may be chance
    in_collectives_ns: int = 0  # what collectives may gain that may use changed links
    # Of the error, and half of it of `run_then_ns`: others may have worked while they waited.
    done_meanwhile_ns: int = 0

    @property
    def replayed_ns(self) -> int:
        """What the run takes if others waited without working."""
        return self.run_then_ns - self.done_meanwhile_ns // 2

    @property
    def gained_share(self) -> float:
        """The share of the run that would be gained."""
        return 1 - self.run_then_ns / self.run_now_ns if self.run_now_ns else 0.0

    @property
    def gained_share_of_sends(self) -> float:
        """The same without what collectives may gain with changed links."""
        return self.gained_share - self.in_collectives_ns / 2 / max(self.run_now_ns, 1)

    @property
    def most_gained_share(self) -> float:
        """The share of the run that may be gained at most."""
        return 1 - self.range_ns[0] / self.run_now_ns if self.run_now_ns else 0.0

    @property
    def least_gained_share(self) -> float:
        """The share of the run that is gained at least."""
        return 1 - self.range_ns[1] / self.run_now_ns if self.run_now_ns else 0.0

    @property
    def likely_gained_share(self) -> float:
        """The share of the run that is gained in the middle of the range."""
        return 1 - sum(self.range_ns) / 2 / self.run_now_ns if self.run_now_ns else 0.0

    @property
    def is_sure(self) -> bool:
        """Whether the run's time can be given as a number; else it is between two."""
        return self.error_ns <= SURE * self.run_then_ns

    @property
    def range_ns(self) -> tuple[int, int]:
        """The least and the most that the run may take."""
        least, most = self.run_then_ns - self.error_ns, self.run_then_ns + self.error_ns
        return max(least, 0), max(min(most, self.run_now_ns), self.run_then_ns)


def with_most_gain(prediction: Prediction, most_gained_ns: int | None) -> Prediction:
    """A prediction whose range ends where the run can gain no more. What it says as a number, or as
    the most likely, stays where that is possible.
    """
    if most_gained_ns is None:
        return prediction
    then, (least, most) = prediction.run_then_ns, prediction.range_ns
    possible = prediction.run_now_ns - most_gained_ns
    if least >= possible or (prediction.is_sure and then >= possible):
        return prediction
    if then >= possible:
        return replace(prediction, error_ns=max(then - possible, most - then))
    if most < possible:  # the replay was off by more than it said
        most = min(possible + 2 * prediction.error_ns, prediction.run_now_ns)
    return replace(
        prediction,
        run_then_ns=(possible + most) // 2,
        step_then_ns=None,
        error_ns=(most - possible) // 2,
        done_meanwhile_ns=0,
    )
