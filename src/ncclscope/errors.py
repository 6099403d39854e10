"""Errors that are shown to users as one sentence and a remedy, without a traceback."""

# An error of DuckDB's by its name: verbs without duckdb do not import it.
_DUCKDB_OUT_OF_MEMORY = "OutOfMemoryException"
_NO_THREAD = "can't start new thread"  # a RuntimeError of Python's
_NO_LIBRARY = "failed to map segment from shared object"  # an ImportError of the dynamic linker's


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, or room for a thread's stack or a library."""
    is_known = isinstance(error, MemoryError) or type(error).__name__ == _DUCKDB_OUT_OF_MEMORY
    return is_known or str(error) == _NO_THREAD or str(error).endswith(_NO_LIBRARY)


class NcclscopeError(Exception):
    """What failed, on what, why; `hint` says what to do now."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__().removesuffix(".")  # a library's message may end in one
        return f"{message}. {self.hint}" if self.hint else message


class UsageError(NcclscopeError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


class FormatError(NcclscopeError):
    """A file that is no capture file, is too damaged to read, or is newer than this release."""


class NewerFormatError(FormatError):
    """A file whose format is newer than this release."""


class IncompleteError(NcclscopeError):
    """The capture is incomplete, and the user asked for an exit code that says so."""

    exit_code = 5
