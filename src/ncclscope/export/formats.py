"""The formats that `ncclscope export` writes. A new one is a module and a line of `FORMATS`."""

import importlib

TYPE_CHECKING = False  # not typing's: see ncclscope/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable

    from ncclscope.export.result import ExportResult

    # (model, selection, path, progress=…, and the format's options)
    Write = Callable[..., ExportResult]


class Export:
    """One format. No dataclass: `--help` lists formats, and need not wait for that module."""

    def __init__(
        self,
        name: str,
        module: str,  # in ncclscope.export; it has write_<name>
        endings: tuple[str, ...] = (),  # of file names, without the dot
        is_directory: bool = False,
        options: tuple[str, ...] = (),  # keyword arguments of `write` that the user sets
        progress_unit: str = "operations",  # what `write` reports its progress in
        can_follow: bool = False,  # export.follow writes it while a job runs
        uses_workers: bool = False,  # `write` takes `engine_of`: what --on names writes as well
    ) -> None:
        self.name, self.module, self.endings = name, module, endings
        self.is_directory, self.options = is_directory, options
        self.progress_unit, self.can_follow = progress_unit, can_follow
        self.uses_workers = uses_workers

    @property
    def write(self) -> "Write":
        """The writer. Its module is imported now, because some need packages that few have."""
        module = importlib.import_module(f"ncclscope.export.{self.module}")
        write: Write = getattr(module, f"write_{self.name}")
        return write


_PATH = "critical_path"
_TRACE = ("operations_only", _PATH)
_DIRECTORY = ("force",)
FORMATS = {
    export.name: export
    for export in (
        Export("jsonl", "text", ("jsonl",), can_follow=True),
        Export("csv", "text", ("csv",)),
        Export("parquet", "parquet", ("parquet",), True, (*_DIRECTORY, _PATH), uses_workers=True),
        Export(
            "perfetto",
            "perfetto",
            ("pftrace", "perfetto-trace", "perfetto"),
            False,
            _TRACE,
            "ranks",
        ),
        Export("chrome", "chrome", ("json",), False, _TRACE, "ranks"),
        Export("inspector", "inspector", (), True, (*_DIRECTORY, "verbose"), "processes"),
        Export("callbacks", "callbacks", (), True, _DIRECTORY, "processes"),
        Export("otf2", "otf2", ("otf2",), True, _DIRECTORY, "ranks"),
    )
}
