"""A made-up NVML: the GPUs that the JSON file FAKE_NVML names have, read anew at each question."""

import json
import os
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, TIMEOUT = 3, 10
_FIELDS = {
    197: "pcie_tx_bytes", 198: "pcie_rx_bytes", 94: "pcie_replays", 138: "nvlink_tx_kib",
    139: "nvlink_rx_kib", 52: "nvlink_replays", 59: "nvlink_recoveries",
}  # fmt: skip


class NVMLError(Exception):
    """With NVML's number."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


def _gpus() -> list[dict[str, Any]]:
    with open(os.environ["FAKE_NVML"]) as file:
        return list(json.load(file))


def _value(gpu: int, name: str) -> Any:
    values = _gpus()[gpu]
    if name not in values:
        raise NVMLError(NOT_SUPPORTED)
    if values[name] == "lost":
        raise NVMLError(15)
    return values[name]


def nvmlInit() -> None:
    if "FAKE_NVML" not in os.environ:
        raise NVMLError(9)


def nvmlDeviceGetCount() -> int:
    return len(_gpus())


def nvmlDeviceGetHandleByIndex(number: int) -> int:
    return number


def nvmlDeviceGetUtilizationRates(gpu: int) -> Any:
    return SimpleNamespace(gpu=_value(gpu, "utilization"))


def nvmlDeviceGetMemoryInfo(gpu: int) -> Any:
    return SimpleNamespace(used=_value(gpu, "memory_used"), total=80 << 30)


def nvmlDeviceGetPowerUsage(gpu: int) -> int:
    return int(_value(gpu, "power_mw"))


def nvmlDeviceGetEnforcedPowerLimit(gpu: int) -> int:
    return int(_value(gpu, "power_limit_mw"))


def nvmlDeviceGetTemperature(gpu: int, sensor: int) -> int:
    return int(_value(gpu, "temperature"))


def nvmlDeviceGetClockInfo(gpu: int, which: int) -> int:
    return int(_value(gpu, {1: "sm_clock", 2: "memory_clock"}[which]))


def nvmlDeviceGetMaxClockInfo(gpu: int, which: int) -> int:
    return 1980


def nvmlDeviceGetCurrentClocksThrottleReasons(gpu: int) -> int:
    return int(_value(gpu, "throttle"))


def nvmlDeviceGetCurrPcieLinkGeneration(gpu: int) -> int:
    return int(_value(gpu, "pcie_generation"))


def nvmlDeviceGetCurrPcieLinkWidth(gpu: int) -> int:
    return int(_value(gpu, "pcie_width"))


def nvmlDeviceGetMaxPcieLinkGeneration(gpu: int) -> int:
    return 5


def nvmlDeviceGetMaxPcieLinkWidth(gpu: int) -> int:
    return 16


def nvmlDeviceGetTotalEccErrors(gpu: int, which: int, since: int) -> int:
    return int(_value(gpu, ("ecc_corrected", "ecc_uncorrected")[which]))


def nvmlDeviceGetPcieThroughput(gpu: int, direction: int) -> int:
    return int(_value(gpu, "pcie_kb_per_s"))


def nvmlDeviceGetUUID(gpu: int) -> bytes:
    return str(_value(gpu, "uuid")).encode()


def nvmlDeviceGetPciInfo(gpu: int) -> Any:
    return SimpleNamespace(busId=b"00000000:%02X:00.0" % (gpu + 16))


def nvmlDeviceGetName(gpu: int) -> str:
    return "Made-up GPU"


def nvmlDeviceGetFieldValues(gpu: int, fields: list[tuple[int, int]]) -> list[Any]:
    values = _gpus()[gpu]
    answers = []
    for number, _ in fields:
        value = values.get(_FIELDS.get(number, ""))
        code = NOT_SUPPORTED if value is None else 0
        answers.append(
            SimpleNamespace(nvmlReturn=code, valueType=3, value=SimpleNamespace(ullVal=value or 0))
        )
    return answers


_taken: dict[int, int] = {}


def nvmlEventSetCreate() -> list[int]:
    return []


def nvmlDeviceRegisterEvents(gpu: int, kinds: int, events: list[int]) -> None:
    _value(gpu, "xids")
    events.append(gpu)


def nvmlEventSetWait(events: list[int], timeout_ms: int) -> Any:
    (gpu,) = events
    xids = _value(gpu, "xids")
    at = _taken.get(gpu, 0)
    if at >= len(xids):
        raise NVMLError(TIMEOUT)
    _taken[gpu] = at + 1
    return SimpleNamespace(eventData=xids[at])
