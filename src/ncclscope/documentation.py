"""Where the pages are that messages and `--help` name: on a site, else in the package."""

from pathlib import Path

URL = ""  # of the site, with the version, without a slash at its end; "": there is none yet
_PACKAGE = Path(__file__).parent
_CHECKOUT = Path(__file__).parents[2]


def page(name: str) -> str:
    """The address of a page: `page("verbs/run.md")`."""
    if URL:
        return f"{URL}/{name.removesuffix('.md').removesuffix('README')}".rstrip("/") + "/"
    folder = _PACKAGE / "docs"
    return str((folder if folder.is_dir() else _CHECKOUT / "docs") / name)
