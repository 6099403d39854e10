"""What is on record against what must exist: one record that opens every output."""

from dataclasses import asdict, dataclass, field, fields
from html import escape
from typing import Any

from ncclscope.humanize import plural, printable

SIMULATION = "this is a simulation: nothing of it was measured"  # a note
FLIGHT_RECORDER = "older than the flight recorder reaches back"  # a reason of losses
_MISSING = "missing on some ranks"
_BEHIND = "behind the end of some ranks' record"


def not_read(error: object) -> str:
    """The note on a process or file that cannot be read."""
    return f"not read: {error}"


def impossible_sizes(operations: int) -> str:
    """The note on operations whose counts no memory could hold."""
    return f"{plural(operations, 'operation')} with an impossible size"


@dataclass(frozen=True, slots=True, repr=False)
class Completeness:
    """Counts over all processes of a capture."""

    processes_found: int
    processes_expected: int
    calls: int
    operations: int
    gpu_timed: int
    repaired: int
    in_flight: int
    untimed: dict[str, int]  # operations by reason
    dropped: dict[str, int]  # events by reason
    stamps: dict[str, int]  # works by what became of their stamps
    missing_operations: int  # that other ranks of their instances show to exist
    mismatched_instances: int  # on which ranks disagree
    notes: list[str] = field(default_factory=list)
    lost: dict[str, int] = field(default_factory=dict)  # events that were on record, by reason
    behind_operations: int = 0  # missing ones after the last sign of their process
    calls_outside: int = 0  # in counters only: dropped, given up, or never recorded
    paused_processes: int = 0  # that recorded totals only for some of their time; of these:
    lived_ns: int = 0  # their lifetimes together
    recorded_ns: int = 0  # the part of it in which single calls were recorded
    drops_counted: bool = True  # False: imported from a tool that does not count its drops
    counts_end_early: int = 0  # processes whose last counts are nowhere

    @property
    def is_simulation(self) -> bool:
        """Whether NCCL and the GPUs were simulated."""
        return SIMULATION in self.notes

    @property
    def is_complete(self) -> bool:
        """Whether nothing that must exist is missing."""
        return not self.missing()

    def missing(self) -> list[str]:
        """What must exist and is not on record, as phrases."""
        absent = self.processes_expected - self.processes_found
        dropped, lost = sum(self.dropped.values()), sum(self.lost.values())
        words = []
        if absent > 0:
            expected = plural(self.processes_expected, "process", "processes")
            words.append(f"{absent:,} of {expected} missing")
        if self.calls_outside:
            words.append(f"{self.outside_in_words()} in counters only")
        if dropped:
            words.append(f"{plural(dropped, 'event')} dropped")
        if lost:
            words.append(f"{plural(lost, 'event')} lost")
        if self.counts_end_early:
            words.append(self._early_in_words())
        if self.missing_operations:
            operations = plural(self.missing_operations, "operation")
            words.append(f"{operations} {_MISSING}")
        if self.behind_operations:
            operations = plural(self.behind_operations, "operation")
            words.append(f"{operations} {_BEHIND}")
        return words

    def line(self) -> str:
        """The counts as one line of text."""
        expected = plural(self.processes_expected, "process", "processes")
        words = [
            f"{self.processes_found:,} of {expected}",
            self._calls_in_words(),
            plural(self.operations, "operation"),
        ]
        if self.operations:
            words.append(f"{100 * self.gpu_timed / self.operations:.4g} % timed by the GPU")
        if self.repaired:
            words.append(f"{self.repaired:,} repaired")
        untimed = sum(self.untimed.values())
        if untimed:
            words.append(f"{untimed:,} untimed")
        if self.in_flight:
            words.append(f"{self.in_flight:,} in flight")
        dropped, lost = sum(self.dropped.values()), sum(self.lost.values())
        if dropped:
            words.append(f"{plural(dropped, 'event')} dropped")
        elif self.drops_counted and not lost and not self.counts_end_early:
            words.append("nothing dropped")
        if lost:
            words.append(f"{plural(lost, 'event')} lost")
        if self.counts_end_early:
            words.append(self._early_in_words())
        if self.missing_operations:
            words.append(f"{self.missing_operations:,} {_MISSING}")
        if self.behind_operations:
            words.append(f"{self.behind_operations:,} {_BEHIND}")
        if self.mismatched_instances:
            words.append(f"{self.mismatched_instances:,} on which ranks disagree")
        return ", ".join(words)

    def _early_in_words(self) -> str:
        return f"counts of {plural(self.counts_end_early, 'process', 'processes')} end early"

    def _calls_in_words(self) -> str:
        if not self.calls_outside:
            return plural(self.calls, "call")
        made = self.calls + self.calls_outside
        return f"{self.calls:,} of {plural(made, 'call')} ({100 * self.calls / made:.3g} %)"

    def outside_in_words(self) -> str:
        """How many of the calls are in the counters only, as a phrase."""
        made = self.calls + self.calls_outside
        share = 100 * self.calls_outside / made if made else 0
        return f"{self.calls_outside:,} of {plural(made, 'call')} ({share:.3g} %)"

    def __repr__(self) -> str:
        return self.line()

    def _repr_html_(self) -> str:
        notes = "".join(f"<li>{escape(printable(note))}</li>" for note in self.notes)
        return f"<div>{escape(self.line())}<ul>{notes}</ul></div>"

    @staticmethod
    def from_json(record: dict[str, Any]) -> "Completeness":
        """The completeness that `as_json` wrote; raises for values of other types."""
        known = {field_.name: field_.type for field_ in fields(Completeness)}
        processes = record["processes"]
        values: dict[str, Any] = {
            "processes_found": int(processes["found"]),
            "processes_expected": int(processes["expected"]),
        }
        for name, value in record.items():
            if known.get(name) is bool:
                values[name] = bool(value)
            elif known.get(name) is int:
                values[name] = int(value)
            elif name == "notes":
                values[name] = [str(note) for note in value]
            elif name in known:
                values[name] = {str(reason): int(count) for reason, count in value.items()}
        return Completeness(**values)

    def as_json(self) -> dict[str, object]:
        """The counts as JSON."""
        record = asdict(self)
        found, expected = record.pop("processes_found"), record.pop("processes_expected")
        if not self.counts_end_early:  # hardly any capture has it
            del record["counts_end_early"]
        return {"processes": {"found": found, "expected": expected}, **record}
