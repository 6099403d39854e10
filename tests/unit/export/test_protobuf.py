"""Rows of byte columns are the messages that protobuf's own code reads."""

import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from ncclscope.export import protobuf as pb


def test_single_messages() -> None:
    packet = pb.number(8, 300) + pb.text(60, pb.number(1, 7) + pb.text(2, "héllo\0"))
    found = Trace.FromString(pb.text(1, packet)).packet[0]
    assert (found.timestamp, found.track_descriptor.uuid) == (300, 7)
    assert found.track_descriptor.name == "héllo\0"
    assert TrackEvent.FromString(pb.number(30, -5)).counter_value == -5


def test_many_messages() -> None:
    draw = np.random.default_rng(1)
    values = np.concatenate([[0, 1, 127, 128, (1 << 62) + 5], 1 << draw.integers(0, 62, 500)])
    present = draw.integers(0, 2, len(values)) == 1
    flow = draw.integers(0, 1 << 62, len(values))
    event = [
        pb.varints(values, pb.tag(11, pb.VARINT)),
        pb.constant(pb.number(9, 1), len(values)),
        pb.varints(values, pb.tag(10, pb.VARINT), present),
        pb.fixed64(flow, pb.tag(47, pb.FIXED64), ~present),
    ]
    rows = pb.message(1, pb.message(11, event))
    packets = Trace.FromString(pb.encode_rows(rows)).packet
    assert [one.track_event.track_uuid for one in packets] == values.tolist()
    assert [one.track_event.HasField("name_iid") for one in packets] == present.tolist()
    named = [one.track_event.name_iid for one in packets if one.track_event.HasField("name_iid")]
    assert named == values[present].tolist()
    flows = [list(one.track_event.flow_ids) for one in packets]
    assert flows == [[] if has else [one] for has, one in zip(present, flow.tolist(), strict=True)]
    places = np.array([3, 3, 0, 7])
    again = [pb.take_rows(pb.merge_columns(rows), places)]
    assert pb.encode_rows(again) == b"".join(
        pb.encode_rows([pb.take_rows(pb.merge_columns(rows), places[i : i + 1])]) for i in range(4)
    )
    assert Trace.FromString(pb.encode_rows(again)).packet[2] == packets[0]


def test_no_rows() -> None:
    assert pb.encode_rows(pb.message(1, [pb.varints(np.empty(0, np.int64), b"\x08")])) == b""
