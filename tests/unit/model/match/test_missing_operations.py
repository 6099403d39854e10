"""Operations that other ranks show to exist: missing, or behind the end of their rank's record."""

import numpy as np

from ncclscope.model.match.communicator_table import (
    CommunicatorBuilder,
    CommunicatorTable,
    MemberRow,
)
from ncclscope.model.match.missing_operations import (
    count_behind,
    first_times,
    missing_by_instance,
    seen_instances,
)
from ncclscope.model.schema import NONE

SECOND = 1_000_000_000


def member(process: int) -> MemberRow:
    return MemberRow(
        rank=process, process=process, global_rank=process, node=0, opened_ns=0, closed_ns=NONE
    )


def job(made: dict[int, list[int]], heard_s: list[float], partly: tuple[int, ...] = ()):
    """By process the seconds of its calls; the n-th calls are one instance."""
    rows = [
        (process, n, t) for process, times in made.items() for n, t in enumerate(times) if t >= 0
    ]
    process, instance, times = (np.array(column) for column in zip(*rows, strict=True))
    operations = {
        "process": process,
        "instance": instance,
        "call_ns": times * SECOND,
        "enqueue_ns": np.full(len(rows), NONE),
        "part_of": np.full(len(rows), NONE),
    }
    count = int(instance.max()) + 1
    instances = {
        "communicator": np.zeros(count, np.int32),
        "ranks_expected": np.full(count, len(made), np.int32),
        "ranks_seen": np.bincount(instance, minlength=count).astype(np.int32),
    }
    communicators = CommunicatorTable()
    communicators.rows.append(CommunicatorBuilder(7, members=[member(process) for process in made]))
    heard_ns = [int(s * SECOND) for s in heard_s]
    halves = [
        {name: values[rows] for name, values in operations.items()}
        for rows in (slice(0, len(rows), 2), slice(1, len(rows), 2))
    ]
    seen = [seen_instances(half, list(partly)) for half in halves]
    missing = missing_by_instance(instances, communicators, list(partly), seen)
    times = [first_times(half, missing) for half in halves]
    behind = count_behind(instances, communicators, heard_ns, missing, times)
    return missing.tolist(), behind


def test_nothing_is_missing() -> None:
    assert job({0: [1, 2], 1: [1, 2]}, [3, 3]) == ([0, 0], 0)


def test_a_rank_that_lives_and_does_not_call() -> None:
    assert job({0: [1, 2], 1: [1, 2], 2: [1]}, [9, 9, 9]) == ([0, 1], 0)


def test_a_rank_that_was_read_before_the_others() -> None:
    assert job({0: [1, 2, 3], 1: [1, 2, 3], 2: [1]}, [3, 3, 1.5]) == ([0, 1, 1], 2)


def test_its_last_call_was_after_its_last_heartbeat() -> None:
    # Nothing at second 2 though it was there at second 3: that one is missing.
    assert job({0: [1, 2, 3, 4], 1: [1, -1, 3]}, [4, 1.5]) == ([0, 1, 0, 1], 1)


def test_what_a_process_gave_up_it_has_counted() -> None:
    assert job({0: [1, 2, 3], 1: [-1, -1, 3]}, [4, 4], partly=(1,)) == ([0, 0, 0], 0)
    assert job({0: [1, 2, 3], 1: [-1, -1, 3], 2: [1, -1, 3]}, [4, 4, 4], partly=(1,)) == (
        [0, 1, 0],
        0,
    )
