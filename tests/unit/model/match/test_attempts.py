"""Whose attempt of the job a process belongs to."""

from ncclscope.model.match.attempts import ProcessSpan, attempts_of

SECOND = 1_000_000_000
WORLD, WORLD_AGAIN = 11, 22


def process_span(
    rank: int, began_s: float, ended_s: float, *communicators: int, restarts: int = 0
) -> ProcessSpan:
    return ProcessSpan(
        rank, restarts, frozenset(communicators), int(began_s * SECOND), int(ended_s * SECOND)
    )


def test_one_run_is_one_attempt() -> None:
    assert attempts_of([]) == []
    assert attempts_of([process_span(rank, 0, 10, WORLD) for rank in range(4)]) == [0] * 4


def test_a_second_run_into_the_same_directory() -> None:
    first = [process_span(rank, 0, 10, WORLD) for rank in range(4)]
    second = [process_span(rank, 20, 30, WORLD_AGAIN) for rank in range(4)]
    third = [process_span(rank, 40, 50, 55) for rank in range(4)]
    assert attempts_of([*third, *first, *second]) == [2] * 4 + [0] * 4 + [1] * 4


def test_without_a_communicator_of_all_ranks() -> None:
    first = [
        process_span(0, 0, 10, 1),
        process_span(1, 0, 10, 1),
        process_span(2, 1, 10, 2),
        process_span(3, 1, 10, 2),
    ]
    second = [
        process_span(0, 20, 30, 3),
        process_span(1, 20, 30, 3),
        process_span(2, 21, 30, 4),
        process_span(3, 21, 30, 4),
    ]
    assert attempts_of([*first, *second]) == [0] * 4 + [1] * 4


def test_small_jobs_at_the_same_time_are_no_attempts_of_each_other() -> None:
    # Each host trains on its own: rank 0 is there twice.
    hosts = [
        process_span(0, 0, 100, 1),
        process_span(1, 0, 100, 1),
        process_span(0, 1, 90, 2),
        process_span(1, 1, 90, 2),
    ]
    assert attempts_of(hosts) == [0] * 4


def test_a_rank_that_is_replaced_while_the_others_stay() -> None:
    # Survivors meet the new process in a new communicator: it is the same attempt.
    job = [
        process_span(0, 0, 100, WORLD, WORLD_AGAIN),
        process_span(1, 0, 40, WORLD),
        process_span(1, 45, 100, WORLD_AGAIN),
    ]
    assert attempts_of(job) == [0, 0, 0]


def test_the_launchers_count_is_believed() -> None:
    # Also where earlier attempts' files are gone, and where hosts' clocks disagree.
    assert attempts_of([process_span(0, 0, 10, WORLD, restarts=3)]) == [3]
    skewed = [process_span(0, 0, 10, WORLD), process_span(0, 3, 13, WORLD_AGAIN, restarts=1)]
    assert attempts_of(skewed) == [0, 1]
    # A second run counts from 0 again.
    both = [
        process_span(0, 0, 10, 1),
        process_span(0, 10, 20, 2, restarts=1),
        process_span(0, 30, 40, 3),
    ]
    assert attempts_of(both) == [0, 1, 2]


def test_wall_clocks_that_differ_a_little() -> None:
    # Rank 0 came back on a host whose clock is 2 s behind.
    assert attempts_of([process_span(0, 0, 60, WORLD), process_span(0, 58, 120, WORLD_AGAIN)]) == [
        0,
        1,
    ]


def test_processes_without_communicator_or_rank() -> None:
    first = [process_span(0, 0, 10, WORLD), process_span(1, 0, 10, WORLD)]
    again = [
        process_span(0, 20, 30, WORLD_AGAIN),
        process_span(1, 20, 30),
    ]  # rank 1 hangs before its init
    assert attempts_of([*first, *again]) == [0, 0, 1, 1]
    nobody = [process_span(-1, 25, 30), process_span(-1, 5, 6)]
    assert attempts_of([*first, *again, *nobody]) == [0, 0, 1, 1, 1, 0]
