"""Where the pages are that messages and `--help` name: in the package, or in a checkout's docs."""

import os  # not pathlib: `--help` and `run` would wait for it

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_CHECKOUT = os.path.dirname(os.path.dirname(_PACKAGE))


def page(name: str) -> str:
    """The path of a page: `page("verbs/run.md")`."""
    folder = os.path.join(_PACKAGE, "docs")
    return os.path.join(folder if os.path.isdir(folder) else _CHECKOUT + "/docs", name)
