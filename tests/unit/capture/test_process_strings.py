"""NCCL's names behind a process's numbers."""

from ncclscope.capture.process_strings import ProcessStrings


def test_interface_v1_has_numbers_and_others_have_strings() -> None:
    strings = ProcessStrings({1: "NVLS", 2: "LL"})
    assert [strings.algorithm(1), strings.protocol(2)] == ["NVLS", "LL"]
    assert [strings.algorithm(1, v1=True), strings.protocol(2, v1=True)] == ["RING", "SIMPLE"]
    unknown = [strings.algorithm(77), strings.algorithm(77, v1=True), strings.protocol(9, v1=True)]
    assert unknown == ["", "", ""]
