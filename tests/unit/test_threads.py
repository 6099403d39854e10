"""Work in threads, also where threads do not start."""

import _thread
import threading
import time

import pytest

from ncclscope.threads import Threads, in_threads


def test_results_come_in_the_order_of_the_items() -> None:
    def slower_at_first(number: int) -> int:
        time.sleep(0.02 * (3 - number))
        return number * number

    assert in_threads(slower_at_first, range(4), 3) == [0, 1, 4, 9]


def test_no_more_run_at_once_than_asked_for() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def run(_: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1
        return _thread.get_ident()

    with Threads(2) as threads:
        of_thread = threads.map(run, range(12))
    assert most == 2
    assert _thread.get_ident() not in of_thread


def test_the_first_error_is_raised_and_what_has_not_begun_is_left_out() -> None:
    done = []

    def fail_at_one(number: int) -> None:
        if number == 1:
            raise ValueError("one")
        time.sleep(0.05)
        done.append(number)

    with pytest.raises(ValueError, match="one"), Threads(1) as threads:
        threads.map(fail_at_one, range(40))
    assert done == [0] or done == [0, 2]  # the thread may have taken up the next one


@pytest.mark.parametrize("starts", ["refused", "without memory"])
def test_work_is_done_here_where_no_thread_begins(
    starts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> int:
        if starts == "refused":
            raise RuntimeError("can't start new thread")
        return 1  # a thread that ends before its first instruction

    monkeypatch.setattr(_thread, "start_new_thread", start)
    assert in_threads(lambda _: _thread.get_ident(), range(20), 4) == [_thread.get_ident()] * 20


def test_threads_begin_again_after_some_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with Threads(1) as threads:
        with monkeypatch.context() as patch:
            patch.setattr(_thread, "start_new_thread", lambda *_: 1)
            assert threads.submit(_thread.get_ident).result() == _thread.get_ident()
        assert threads.submit(_thread.get_ident).result() != _thread.get_ident()


def test_a_thread_that_begins_late_takes_up_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    late = []
    monkeypatch.setattr(_thread, "start_new_thread", lambda work, _: late.append(work))
    threads = Threads(1)
    first, second = threads.submit(int, "1"), threads.submit(int, "2")
    assert first.result() == 1
    late[0]()
    assert second.is_done
    assert second.result() == 2
    threads.close()
    assert threads.is_idle
