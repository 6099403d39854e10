"""Counters of GPUs from NVML, through the package nvidia-ml-py where it is installed.

Each counter has a query of its own: which of them are supported differs between GPUs, drivers and
virtual machines.
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
_Query = Callable[[Any, Any], int]
_QUERIES: dict[str, _Query] = {
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
# Each of these two takes 20 ms, so they are used only where the totals are missing.
_RATE_QUERIES: dict[str, _Query] = {
    "pcie_tx_bytes_per_s": lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, 0) * 1000,
    "pcie_rx_bytes_per_s": lambda nvml, gpu: nvml.nvmlDeviceGetPcieThroughput(gpu, 1) * 1000,
}
# NVML's field numbers with their scopes, which are added up, and the unit of their values.
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


def _is_permanent(error: Exception) -> bool:
    """Whether a query that failed will fail again: the GPU or driver does not support it."""
    code = getattr(error, "value", None)
    return isinstance(error, (AttributeError, TypeError)) or code in (
        _NOT_SUPPORTED,
        _NO_SUCH_FUNCTION,
    )


class _Gpu:
    """A GPU, and the queries that it supports."""

    def __init__(self, nvml: Any, number: int) -> None:
        self._nvml, self._handle = nvml, nvml.nvmlDeviceGetHandleByIndex(number)
        facts: dict[str, str | int] = {}
        for name, query in _FACTS.items():
            try:
                facts[name] = query(nvml, self._handle)
            except Exception:
                continue
        self.device = Device(GPU, str(number), facts)
        self._fields = dict(FIELDS)
        fields = self._read_fields(first=True)
        self._queries = dict(_QUERIES) | ({} if "pcie_tx_bytes" in fields else _RATE_QUERIES)
        self._events = self._watch()
        self._xids, self._last_xid = 0, 0

    def _watch(self) -> Any:
        """NVML's event set that receives Xid messages; None where it cannot be created."""
        try:
            events = self._nvml.nvmlEventSetCreate()
            self._nvml.nvmlDeviceRegisterEvents(self._handle, _XID_EVENTS, events)
        except Exception:
            return None
        return events

    def read(self) -> Numbers:
        """Its counters now."""
        numbers = self._read_fields()
        for name, query in list(self._queries.items()):
            try:
                value = int(query(self._nvml, self._handle))
            except Exception as error:  # NVML's own errors, or whatever a driver causes
                if _is_permanent(error):
                    del self._queries[name]
                continue
            if 0 <= value <= _LARGEST:
                numbers[name] = value
        if self._events is not None:
            self._count_events()
            numbers["xid_errors"], numbers["last_xid"] = self._xids, self._last_xid
        return numbers

    def _read_fields(self, first: bool = False) -> Numbers:
        """Totals; those that the GPU does not have at the first reading are dropped for good."""
        wanted = [number for numbers, _ in self._fields.values() for number in numbers]
        try:
            answers = self._nvml.nvmlDeviceGetFieldValues(self._handle, wanted) if wanted else []
        except Exception as error:
            if _is_permanent(error):
                self._fields.clear()
            return {}
        values = dict(zip(wanted, map(_field_value, answers), strict=False))
        totals = {}
        for name, (fields, unit) in list(self._fields.items()):
            parts = [value for value in map(values.get, fields) if value is not None]
            if parts:
                totals[name] = sum(parts) * unit
            elif first:
                del self._fields[name]
        return totals

    def _count_events(self) -> None:
        try:
            for _ in range(_MOST_EVENTS):
                event = self._nvml.nvmlEventSetWait(self._events, 0)
                self._xids, self._last_xid = self._xids + 1, int(event.eventData)
        except Exception:  # no more events, which NVML reports as a timeout
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
    """All GPUs of the host; `why_none` says why there is none."""

    def __init__(self) -> None:
        self.why_none = ""
        self._gpus: list[_Gpu] = []
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
                self._gpus.append(_Gpu(nvml, number))
            except Exception:  # fallen off the bus, or not accessible
                continue
        if not self._gpus:
            self.why_none = "there is none that can be asked"

    def read(self) -> dict[Device, Numbers]:
        """Counters of all GPUs; one that no longer answers is left out."""
        readings = ((gpu.device, gpu.read()) for gpu in self._gpus)
        return {device: numbers for device, numbers in readings if numbers}
