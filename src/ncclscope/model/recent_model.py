"""The model of what a running job did last, from the ends of its logs.

Its size does not depend on how long the job runs. Calls are matched by NCCL's own numbers, and
sends and receives by their times (match/recent_numbers.py), because nobody counted what came
before. It is made in TMPDIR, and gone with the process that made it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from ncclscope.model.decode_and_join import build
from ncclscope.model.decode_pool import Decoder
from ncclscope.model.engine import Engine, here
from ncclscope.model.model import Model
from ncclscope.model.process.decoded_process import (
    DecodedProcess,
    Placement,
    decode_process,
    write_operations,
)
from ncclscope.model.process.proxy_step_times import StepTimes
from ncclscope.model.schema import Columns
from ncclscope.model.streams import StreamRanges


def recent_model(capture: Path, newest: Mapping[Path, int]) -> Model:
    """The model of these process folders, of each at most so many slots of the last two files of
    its log. FormatError where none of them can be read.
    """

    @contextmanager
    def engine_of(folders: Sequence[Path], target: Path) -> Iterator[Engine]:
        with here(folders, target) as engine:
            yield _RecentEngine(engine, newest, target)

    return build(capture, "", None, engine_of, keep=False, recent=list(newest))


class _RecentDecoder:
    """Decodes the ends of logs, in this process."""

    checksum: int | None = None

    def __init__(self, newest: Mapping[Path, int], target: Path) -> None:
        self._newest, self._target = iter(newest.items()), target
        self._columns: Columns = {}
        self._streams: StreamRanges | None = None

    def decode(self) -> DecodedProcess | str:
        decoded = decode_process(*next(self._newest))
        if isinstance(decoded, str):
            return decoded
        process, self._columns = decoded
        # Transfers of the network are counted from the beginning, which was not read.
        return replace(
            process, sends=_no_steps(process.sends), receives=_no_steps(process.receives)
        )

    def write(self, placement: Placement) -> None:
        self._streams = write_operations(self._columns, placement, self._target)
        self._columns = {}

    def streams(self) -> StreamRanges:
        assert self._streams is not None
        return self._streams


def _no_steps(times: StepTimes) -> StepTimes:
    return times.of(np.zeros(len(times.step), bool))


class _RecentEngine:
    """This machine, with decoders of the ends of logs."""

    repeats = False
    threads = 1  # it runs beside a job

    def __init__(self, engine: Engine, newest: Mapping[Path, int], target: Path) -> None:
        self.bundles, self.map, self.reduce = engine.bundles, engine.map, engine.reduce
        self._decoder = _RecentDecoder(newest, target)

    @contextmanager
    def decoders(self, folders: Sequence[Path]) -> Iterator[list[Decoder]]:
        """One decoder: bounded ends of logs are not worth workers."""
        yield [self._decoder]
