"""Errors that are shown to users as one sentence and a remedy, without a traceback."""


class NcclscopeError(Exception):
    """What failed, on what, why; `hint` says what to do now."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__().removesuffix(".")  # causes in others' words may have one
        return f"{message}. {self.hint}" if self.hint else message


class UsageError(NcclscopeError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


class FormatError(NcclscopeError):
    """A capture file that is not one, is damaged beyond use, or is newer than this release."""


class IncompleteError(NcclscopeError):
    """What must exist is missing, and the user asked to be told by the exit code."""

    exit_code = 5
