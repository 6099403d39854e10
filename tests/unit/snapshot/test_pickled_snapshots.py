"""Workers hand snapshots to the command."""

import pickle

from ncclscope.snapshot.types import OpenEvents
from tests.support.snapshot_builders import operation, rank_state, recv_wait, snapshot


def test_a_snapshot_arrives_as_it_was_sent() -> None:
    parts = OpenEvents(inside_call_ns=5, channels=[0, 1], steps=[recv_wait(2)], proxied=True)
    sent = snapshot(0, rank_state(0, 2, in_flight=(operation(1),), parts=parts), rank_state(0, 4))
    assert pickle.loads(pickle.dumps(sent)) == sent
