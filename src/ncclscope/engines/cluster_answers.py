"""What a cluster answers, or a sentence that says why it does not."""

import importlib
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncclscope.engines.worker_check import check_workers
from ncclscope.errors import NcclscopeError, is_out_of_memory

_LOOK_S = 5  # at whether the cluster has workers
_MOST_ALONE_S = 60  # without any: those that died are started again in less
_MORE_MEMORY = "Raise NCCLSCOPE_MEMORY_LIMIT if it is set, or give workers more memory"


@dataclass(frozen=True, slots=True)
class Answers:
    """What is asked of a cluster.

    on      what people call it
    target  the model's folder, which workers have to see
    """

    client: Any
    on: str
    target: Path

    def of(self, ask: Callable[[], Any]) -> Any:
        """What is asked for; a NcclscopeError where the cluster cannot answer."""
        distributed: Any = importlib.import_module("distributed")
        cannot = f"cannot read the capture on {self.on}:"
        try:
            return ask()
        except distributed.KilledWorker as error:
            message = f"{cannot} its workers die ({error})"
            hint = "They may have too little memory, or no ncclscope"
            raise NcclscopeError(message, hint) from None
        except (CancelledError, distributed.comm.CommClosedError, TimeoutError):
            hint = "Run it again, or leave --on out"
            raise NcclscopeError(f"{cannot} its scheduler is gone", hint) from None
        except (NcclscopeError, OSError):
            raise
        except Exception as error:
            if not is_out_of_memory(error):
                # Workers that have joined since the first check may not know what is asked.
                check_workers(self.client, self.target)
                raise
            message = f"{cannot} a worker has not enough memory"
            raise NcclscopeError(message, _MORE_MEMORY) from None

    def when_ended(self, futures: list[Any]) -> None:
        """Returns when these have ended; a NcclscopeError where the cluster has no worker for long:
        Dask would wait for one for ever.
        """
        distributed: Any = importlib.import_module("distributed")

        def ended() -> bool:
            try:
                distributed.wait(futures, timeout=_LOOK_S)
            except distributed.TimeoutError:
                return False
            return True

        last_seen = time.monotonic()
        while not self.of(ended):
            if self.of(lambda: self.client.scheduler_info()["workers"]):
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > _MOST_ALONE_S:
                alone = f"it has no workers for {_MOST_ALONE_S} s"
                message = f"cannot read the capture on {self.on}: {alone}"
                raise NcclscopeError(
                    message, "Start workers and run it again: what is done is kept"
                )
