"""Writes the project's addresses into the files that name them: `python -m tools.addresses`.

The one setting is `Repository` in [project.urls] of pyproject.toml: change that line and run this.
The site is at the forge's pages, where the release's workflow publishes it. mkdocs reads the
addresses itself (tools/site_links.py).
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACEHOLDER = "https://github.com/ncclscope/ncclscope"  # made up: there is no such repository yet


def setting(name: str) -> str:
    """An address of [project.urls], without a slash at its end."""
    line = re.search(rf'^{name} = "(.*?)/?"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert line
    return line[1]


def image() -> str:
    """Where images are: the repository of the same name at the forge's registry."""
    return "ghcr.io/" + "/".join(setting("Repository").lower().split("/")[-2:])


def site() -> str:
    """Where the documentation is: the pages of the repository's owner."""
    owner, name = setting("Repository").split("/")[-2:]
    return f"https://{owner.lower()}.github.io/{name}"


def files() -> dict[Path, str]:
    """The files that name an address, as they should be."""
    repository = setting("Repository")
    lines = {
        "pyproject.toml": [
            (r'^Documentation = ".*"$', f'Documentation = "{site()}/"'),
            (r'^Changelog = ".*"$', f'Changelog = "{repository}/blob/main/CHANGELOG.md"'),
            (r'^Issues = ".*"$', f'Issues = "{repository}/issues"'),
        ],
        "CITATION.cff": [(r"^repository-code: .*$", f"repository-code: {repository}")],
        "charts/ncclscope/Chart.yaml": [(r"^home: .*$", f"home: {repository}")],
        "charts/ncclscope/values.yaml": [(r"^  repository: .*$", f"  repository: {image()}")],
    }
    changed = {}
    for name, replacements in lines.items():
        text = (ROOT / name).read_text()
        for pattern, line in replacements:
            text, count = re.subn(pattern, line, text, flags=re.M)
            assert count == 1, (name, pattern)
        changed[ROOT / name] = text
    return changed


def stale_files() -> list[str]:
    """Files that name another address than the setting gives."""
    return [file.name for file, text in files().items() if file.read_text() != text]


def main() -> None:
    """Writes them."""
    for file, text in files().items():
        file.write_text(text)


if __name__ == "__main__":
    main()
