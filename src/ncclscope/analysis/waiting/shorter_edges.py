"""What edges of a rank are shorter than usual, which makes up for others that are longer.

Lengths vary both ways. Of a rank that all others wait for, the sum of what is longer than usual
holds half of that variation, though it comes to nothing in sum:

    delay of a rank         10.0  10.0  10.0  10.0    sum 40.0
    its work, usual 16.0    16.5  15.4  16.7  15.4    longer by 1.2, shorter by 1.2: no excess

Shorter edges count where longer ones would: on the critical path, as others waited for them, and
as far from the usual as notable excess is. So they take nothing from a pause, which is far longer.
They make up for edges at the same place of a step alone.
"""

from dataclasses import dataclass

import numpy as np

from ncclscope.analysis.waiting.arrivals import START
from ncclscope.analysis.waiting.critical_path import CriticalPath
from ncclscope.analysis.waiting.dependencies import BACKS, Dependencies
from ncclscope.analysis.waiting.origin_groups import NOTABLE
from ncclscope.arrays import _abi
from ncclscope.arrays.joins import factorize
from ncclscope.arrays.types import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Deviations:
    """Edges of groups that are longer, or shorter, than usual."""

    group: Ints
    place: Ints  # in a step
    ns: Floats  # by how much

    def of(self, chosen: Bools) -> "Deviations":
        """Some of them."""
        return Deviations(self.group[chosen], self.place[chosen], self.ns[chosen])


def places_in_step(dependencies: Dependencies, events: Ints) -> Ints:
    """By event a number of its position, the kind of the edge before it, and what that follows."""
    position = dependencies.position[events // 3].astype(np.int64)
    return (position * 8 + dependencies.edge[events]) * BACKS + dependencies.back[events]


def shorter_on_path(
    path: CriticalPath, dependencies: Dependencies, usual_ns: Floats, start_up: Bools
) -> tuple[Ints, Floats]:
    """Events of the path after edges of ranks that are shorter than usual, and by how much. A start
    that was held back does not show when its rank was ready, and does not count.
    """
    events = path.events
    edge, kernel = dependencies.edge[events], events // 3
    own = (edge != _abi.EDGE_TRANSFER) & (edge != _abi.EDGE_ROOT) & ~start_up[kernel]
    own &= (events % 3 != START) | (dependencies.blocked[kernel] == 0)
    events = events[own]
    shorter = np.nan_to_num(usual_ns[events] - dependencies.length_ns[events])
    return events[shorter > 0], shorter[shorter > 0]


def made_up_by_group(typical_ns: Floats, longer: Deviations, shorter: Deviations) -> Floats:
    """By group what shorter edges make up for: no more than what others at the same place of a step
    are longer. `typical_ns`: by group its typical excess.
    """
    shorter = shorter.of(shorter.ns >= NOTABLE * typical_ns[shorter.group])
    count, groups = len(longer.ns), len(typical_ns)
    place = factorize(np.concatenate([longer.place, shorter.place]))[0].astype(np.int64)
    group = np.concatenate([longer.group, shorter.group])
    cell, cells = factorize(place * groups + group)
    group_of = np.zeros(cells, np.int64)
    group_of[cell] = group
    sums = [
        np.bincount(cell[part], ns, minlength=cells)
        for part, ns in ((slice(count), longer.ns), (slice(count, None), shorter.ns))
    ]
    made_up = np.minimum(sums[0], sums[1])
    return np.bincount(group_of, made_up, minlength=groups).astype(np.float64)
