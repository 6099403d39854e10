"""GPUs by way of NVML: the package nvidia-ml-py, where it is installed.

Every number is asked for by itself: which of them a GPU, a driver or a virtual machine has differs.
"""

import importlib
from collections.abc import Callable
from typing import Any

from ncclscope.system.counters import GPU, Device
from ncclscope.system.host import Numbers

_MOST_GPUS = 64
_MOST_EVENTS = 64  # of one GPU between two samples
_SUCCESS, _NOT_SUPPORTED, _NO_SUCH_FUNCTION = 0, 3, 13
_LARGEST = (1 << 63) - 1
_XID_EVENTS = 0x8
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024
_VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_Ask = Callable[[Any, Any], int]
_ASKED: dict[str, _Ask] = {
    "utilization_percent": lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory_used_bytes": lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
    "power_mw": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu),
    "power_limit_mw": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu),
    "temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, 0),
    "sm_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, 1),
    "memory_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, 2),
    "throttle_reasons": lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    "pcie_generation": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkGeneration(gpu),
    "pcie_width": lambda nvml, gpu: nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "ecc_corrected": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, 0, 0),
    "ecc_uncorrected": lambda nvml, gpu: nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0),
}
# Each of these two takes 20 ms, so they are asked only where the totals are missing.
_INSTEAD: dict[str, _Ask] = {
    "pcie_tx_bytes_per_s": lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, 0) * 1000,
    "pcie_rx_bytes_per_s": lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, 1) * 1000,
}
# NVML's numbers of fields, their scope, and the unit of their values; several are added up.
FIELDS: dict[str, tuple[tuple[tuple[int, int], ...], int]] = {
    "pcie_tx_bytes": (((197, 0),), 1),
    "pcie_rx_bytes": (((198, 0),), 1),
    "pcie_replays": (((94, 0),), 1),
    "nvlink_tx_bytes": (((138, _ALL_LINKS),), _KIB),
    "nvlink_rx_bytes": (((139, _ALL_LINKS),), _KIB),
    "nvlink_errors": (((38, 0), (45, 0), (52, 0), (59, 0)), 1),
}
_FACTS: dict[str, Callable[[Any, Any], str | int]] = {
    "uuid": lambda nvml, gpu: _text(nvml.nvmlDeviceGetUUID(gpu)),
    "bus_id": lambda nvml, gpu: _text(nvml.nvmlDeviceGetPciInfo(gpu).busId),
    "model": lambda nvml, gpu: _text(nvml.nvmlDeviceGetName(gpu)),
    "memory_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "sm_clock_most_mhz": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxClockInfo(gpu, 1)),
    "pcie_generation_most": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(gpu)),
    "pcie_width_most": lambda nvml, gpu: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)),
}


def _text(value: str | bytes) -> str:
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))[:96]


def _never(error: Exception) -> bool:
    """Whether a GPU will not answer this question later, either."""
    code = getattr(error, "value", None)
    return isinstance(error, (AttributeError, TypeError)) or code in (
        _NOT_SUPPORTED,
        _NO_SUCH_FUNCTION,
    )


class _OneGpu:
    """A GPU, and the questions that it answers."""

    def __init__(self, nvml: Any, number: int) -> None:
        self._nvml, self._handle = nvml, nvml.nvmlDeviceGetHandleByIndex(number)
        facts: dict[str, str | int] = {}
        for name, ask in _FACTS.items():
            try:
                facts[name] = ask(nvml, self._handle)
            except Exception:
                continue
        self.device = Device(GPU, str(number), facts)
        self._fields = dict(FIELDS)
        fields = self._read_fields(first=True)
        self._asked = dict(_ASKED) | ({} if "pcie_tx_bytes" in fields else _INSTEAD)
        self._events = self._watch()
        self._xids, self._last_xid = 0, 0

    def _watch(self) -> Any:
        """A set of events that Xid messages fall into; None where they cannot be had."""
        try:
            events = self._nvml.nvmlEventSetCreate()
            self._nvml.nvmlDeviceRegisterEvents(self._handle, _XID_EVENTS, events)
        except Exception:
            return None
        return events

    def read(self) -> Numbers:
        """What it answers now."""
        found = self._read_fields()
        for name, ask in list(self._asked.items()):
            try:
                value = int(ask(self._nvml, self._handle))
            except Exception as error:  # of a library that is not ours, and of drivers
                if _never(error):
                    del self._asked[name]
                continue
            if 0 <= value <= _LARGEST:
                found[name] = value
        if self._events is not None:
            self._take_events()
            found["xid_errors"], found["last_xid"] = self._xids, self._last_xid
        return found

    def _read_fields(self, first: bool = False) -> Numbers:
        """Totals; those that the GPU does not have at first are not asked for again."""
        wanted = [one for fields, _ in self._fields.values() for one in fields]
        try:
            answers = self._nvml.nvmlDeviceGetFieldValues(self._handle, wanted) if wanted else []
        except Exception as error:
            if _never(error):
                self._fields.clear()
            return {}
        values = {one: _field_value(answer) for one, answer in zip(wanted, answers, strict=False)}
        found = {}
        for name, (fields, unit) in list(self._fields.items()):
            known = [value for value in map(values.get, fields) if value is not None]
            if known:
                found[name] = sum(known) * unit
            elif first:
                del self._fields[name]
        return found

    def _take_events(self) -> None:
        try:
            for _ in range(_MOST_EVENTS):
                event = self._nvml.nvmlEventSetWait(self._events, 0)
                self._xids, self._last_xid = self._xids + 1, int(event.eventData)
        except Exception:  # no more of them: NVML calls that a timeout
            return


def _field_value(answer: Any) -> int | None:
    try:
        if answer.nvmlReturn != _SUCCESS:
            return None
        value = int(getattr(answer.value, _VALUE_TYPES[answer.valueType]))
    except (AttributeError, IndexError, TypeError, ValueError):
        return None
    return value if 0 <= value <= _LARGEST else None


class Gpus:
    """All GPUs of the host; `why_none` says why there are no numbers of any."""

    def __init__(self) -> None:
        self.why_none = ""
        self._gpus: list[_OneGpu] = []
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            count = min(int(nvml.nvmlDeviceGetCount()), _MOST_GPUS)
        except ImportError:
            self.why_none = "nvidia-ml-py is not installed (pip install nvidia-ml-py)"
            return
        except Exception as error:
            self.why_none = f"NVML says: {str(error)[:200] or type(error).__name__}"
            return
        for number in range(count):
            try:
                self._gpus.append(_OneGpu(nvml, number))
            except Exception:  # fallen off the bus, or not ours
                continue
        if not self._gpus:
            self.why_none = "there is none that can be asked"

    def read(self) -> dict[Device, Numbers]:
        """All of them; one that answers nothing any more is left out."""
        found = {gpu.device: gpu.read() for gpu in self._gpus}
        return {device: numbers for device, numbers in found.items() if numbers}
