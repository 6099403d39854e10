"""Where the pages are that messages and `--help` name: on a site, else in the package."""

import os  # not pathlib: `--help` and `run` would wait for it

URL = ""  # of the site, with the version, without a slash at its end; "": there is none yet
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_CHECKOUT = os.path.dirname(os.path.dirname(_PACKAGE))


def page(name: str) -> str:
    """The address of a page: `page("verbs/run.md")`."""
    if URL:
        return f"{URL}/{name.removesuffix('.md').removesuffix('README')}".rstrip("/") + "/"
    folder = os.path.join(_PACKAGE, "docs")
    return os.path.join(folder if os.path.isdir(folder) else _CHECKOUT + "/docs", name)
