"""One rank of a scenario: `python -m ncclscope.simulation.rank`, started by the job."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

from ncclscope.errors import NcclscopeError
from ncclscope.simulation.nccl import (
    HOLD_END,
    HOLD_LAST_RECEIVE,
    HOLD_LAUNCH,
    HOLD_SENDS,
    SimulatedNccl,
)
from ncclscope.simulation.scenario import Range, Scenario
from ncclscope.simulation.scenario_files import read_scenario

SCENARIO_VARIABLE, ID_VARIABLE = "NCCLSCOPE_SIM_SCENARIO", "NCCLSCOPE_SIM_ID"
PROGRESS_VARIABLE = "NCCLSCOPE_SIM_PROGRESS"  # a descriptor
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Where a rank stops, by the stage at which it is stuck. At `network` no other rank's kernel ends.
_HOLDS = {
    "launch": HOLD_LAUNCH,
    "finish": HOLD_END | HOLD_LAST_RECEIVE,
    "network": HOLD_END | HOLD_SENDS,
}


class _Ranges:
    """Makes the scenario's ranges through the plugin; without one, none."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        plugin = os.environ.get("NCCL_PROFILER_PLUGIN")
        self._ranges = ranges if plugin else ()
        self._plugin = ctypes.CDLL(plugin) if self._ranges else None

    def begin(self, step: int, call: int) -> None:
        """Those that begin before a call; those that hold no call end at once."""
        for range_ in self._ranges:
            if range_.first != call or self._plugin is None:
                continue
            text = range_.label(step).encode()
            number = self._plugin.ncclscope_range_text(text)
            if range_.mark:
                payload = ctypes.c_uint64(range_.payload)
                self._plugin.ncclscope_range_mark(number, range_.source, payload)
                continue
            self._plugin.ncclscope_range_push(number, text, range_.source)
            if range_.last < 0:
                time.sleep(range_.ms / 1e3)
                self._plugin.ncclscope_range_pop()

    def end(self, call: int) -> None:
        """Those of which this is the last call."""
        for range_ in self._ranges:
            if range_.last == call and not range_.mark and self._plugin is not None:
                self._plugin.ncclscope_range_pop()


class _Rank:
    def __init__(self, scenario: Scenario, rank: int, unique_id: bytes) -> None:
        self._scenario, self._rank, self._nccl = scenario, rank, SimulatedNccl()
        self._ranges = _Ranges(scenario.ranges)
        nccl, largest = self._nccl, max((call.size for call in scenario.calls), default=1)
        wrong = max((wrong.size for wrong in scenario.wrong), default=0)
        times = max((heavy.factor for heavy in scenario.heavy), default=1)
        size_bytes = max(largest * times, wrong, 64) * 2 * scenario.ranks
        world, *others = scenario.made_communicators
        self._world = nccl.communicator(world.name, unique_id, scenario.ranks, rank)
        self._stream = nccl.stream()
        self._buffers = nccl.memory(size_bytes), nccl.memory(size_bytes)
        # By name: communicator, its ranks, this rank in it.
        self._comms = {world.name: (self._world, tuple(range(scenario.ranks)), rank)}
        for communicators in others:
            groups = communicators.groups(scenario.ranks)
            color = next(n for n, members in enumerate(groups) if rank in members)
            comm = nccl.split(communicators.name, self._world, color, rank)
            members = groups[color]
            self._comms[communicators.name] = comm, members, members.index(rank)

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _get_stuck(self, step: int, number: int, members: tuple[int, ...]) -> None:
        """Makes this rank's next call stop where the scenario says, if it does."""
        for stuck in self._scenario.stuck:
            if (stuck.step, stuck.call) != (step, number) or stuck.rank not in members:
                continue
            if stuck.rank != self._rank:
                self._nccl.hold(HOLD_END if stuck.at == "network" else 0)
            elif stuck.at == "start":
                self._nccl.block(self._stream)
            else:
                self._nccl.hold(_HOLDS[stuck.at])

    def _call(self, step: int, number: int) -> None:
        here = self._rank, step, number
        scenario = self._scenario
        time.sleep(scenario.late_ms(*here) / 1e3)
        if any((never.rank, never.step, never.call) == here for never in scenario.never):
            threading.Event().wait()
        deaths = [death for death in scenario.dies if (death.rank, death.step, death.call) == here]
        if any(not death.after for death in deaths):
            self._die()
        if deaths:  # the call is made, its kernel must not begin
            self._nccl.block(self._stream)
        call = scenario.call_of(*here)
        comm, members, rank = self._comms[call.communicator]
        self._get_stuck(step, number, members)
        before = members[rank - 1]
        times = scenario.sends_times(self._rank, number), scenario.sends_times(before, number)
        self._nccl.call(call, comm, len(members), rank, self._buffers, self._stream, times)
        if deaths:
            self._die()

    def run(self) -> None:
        """Makes all steps, then destroys the communicators."""
        progress = int(os.environ[PROGRESS_VARIABLE])
        calls = len(self._scenario.calls)
        for step in range(self._scenario.steps):
            os.write(progress, b".")
            self._ranges.begin(step, 0)
            time.sleep(self._scenario.compute_ms / 1e3)
            for number in range(calls):
                if number:
                    self._ranges.begin(step, number)
                self._call(step, number)
                self._ranges.end(number)
            self._nccl.wait(self._stream)
            self._ranges.begin(step, calls)
        self._nccl.destroy([comm for comm, _, _ in reversed(self._comms.values())])


def _end_with_the_launcher() -> None:
    """Makes the kernel kill this rank when its launcher dies, and Ctrl-C end it without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> int:
    """Runs the rank that the environment variables describe; returns the exit code."""
    _end_with_the_launcher()
    try:
        scenario = read_scenario(Path(os.environ[SCENARIO_VARIABLE]))
        _Rank(scenario, int(os.environ["RANK"]), bytes.fromhex(os.environ[ID_VARIABLE])).run()
    except NcclscopeError as error:
        print(f"rank {os.environ['RANK']}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the launcher is gone
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
