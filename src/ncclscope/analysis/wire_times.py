"""How long collectives take on the wire, against the median of their kind.

Where all ranks wait for all, the shortest duration is the time on the wire. A Broadcast shows it
by what its receivers take after the last start that they waited for: that of their root, or of the
last rank where it is large. The median receiver counts, since one that comes late finds the data
there, and one behind it may wait for it.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.distinct import distinct_rows
from ncclscope.analysis.run import Run
from ncclscope.analysis.synchronized_instances import SynchronizedInstances
from ncclscope.analysis.waiting.arrivals import END
from ncclscope.analysis.waiting.origins import Waiting
from ncclscope.analysis.waiting.quantiles import quantile_by_group
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints
from ncclscope.model.schema import NONE
from ncclscope.nccl.functions import ROOT_FIRST, waits_for

_LEAST_OF_KIND = 6  # instances of a function and size: fewer have no median to compare with


@dataclass(frozen=True, slots=True)
class WireTimes:
    """Times on the wire by instance, in the order of their ends."""

    communicator: Ints
    end_ns: Ints
    wire_ns: Floats
    relative: Floats  # logarithm of wire / median of its kind


@dataclass(frozen=True, slots=True)
class _Instances:
    """The same before they are compared; `whole`: all of their ranks are on record."""

    communicator: Ints
    instance: Ints
    kind: Ints
    wire_ns: Floats
    whole: Bools


def wire_times(
    run: Run, instances: SynchronizedInstances, waiting: Waiting | None = None
) -> WireTimes:
    """All instances whose function and size occur often enough. `waiting` has Broadcasts, too."""
    own = _Instances(
        instances.communicator, instances.instance, instances.kind, instances.wire_ns,
        _is_whole(instances.communicator, instances.count),
    )  # fmt: skip
    if waiting is not None:
        own = _together(own, _broadcasts(run, waiting))
    if not len(own.instance):
        none, no_times = np.empty(0, np.int64), np.empty(0, np.float64)
        return WireTimes(none, none, no_times, no_times)
    wire, kind = own.wire_ns, own.kind
    order = np.lexsort((wire, kind))
    _, first, count = np.unique(kind[order], return_index=True, return_counts=True)
    median = wire[order][first + count // 2]
    relative = np.log(np.maximum(wire, 1.0) / np.maximum(median[kind], 1.0))
    end = np.asarray(run.model.tables["instances"]["last_end_ns"], np.int64)[own.instance]
    by_time = np.argsort(end, kind="stable")
    keep = by_time[((count >= _LEAST_OF_KIND)[kind] & own.whole)[by_time]]
    return WireTimes(own.communicator[keep], end[keep], wire[keep], relative[keep])


def _is_whole(communicator: Ints, count: Ints) -> Bools:
    """By instance whether as many ranks as ever are on record: one that is missing may have been
    the last, and what others waited for it is no time on the wire.
    """
    most = np.zeros(int(communicator.max(initial=0)) + 1, np.int64)
    np.maximum.at(most, communicator, count)
    return np.asarray(count == most[communicator])


def _broadcasts(run: Run, waiting: Waiting) -> _Instances:
    """All Broadcasts, by what the median receiver takes. Those are left out that seem to take no
    time: clocks of hosts are further apart than that.
    """
    kernels, functions = waiting.kernels, run.model.words["function"]
    sends = np.array([*(waits_for(name) == ROOT_FIRST for name in functions), False])
    rows = np.flatnonzero(sends[kernels.function] & ~kernels.pair)
    operations = kernels.row[rows]
    instance = run.column("instance", operations)
    receives = run.column("root", operations) != run.column("rank", operations)
    receives &= instance != NONE
    rows, operations, instance = rows[receives], operations[receives], instance[receives]
    number, groups = factorize(instance)
    group = number.astype(np.int64)
    length_ns = waiting.dependencies.length_ns[END::3][rows]
    one = np.zeros(groups, np.int64)
    one[group] = np.arange(len(rows))  # a receiver of each
    communicator = kernels.communicator[rows[one]].astype(np.int64)
    size_bytes = run.column("size_bytes", operations[one])
    whole = _is_whole(communicator, np.bincount(group, minlength=groups))
    wire_ns = np.asarray(quantile_by_group(group, groups, length_ns, 0.5), np.float64)
    shown = np.flatnonzero(wire_ns > 0)
    return _Instances(
        communicator[shown],
        instance[one][shown],
        distinct_rows([communicator[shown], size_bytes[shown]])[1],
        wire_ns[shown],
        whole[shown],
    )


def _together(a: _Instances, b: _Instances) -> _Instances:
    kinds = int(a.kind.max(initial=-1)) + 1
    return _Instances(
        np.concatenate([a.communicator, b.communicator]),
        np.concatenate([a.instance, b.instance]),
        np.concatenate([a.kind, b.kind + kinds]),
        np.concatenate([a.wire_ns, b.wire_ns]),
        np.concatenate([a.whole, b.whole]),
    )
