"""Words that docs/glossary.md retires are in no identifier of Python, C or TypeScript."""

import functools
import re
from pathlib import Path

from tests.support.identifiers import identifiers_in, names_in, words_of
from tests.support.paths import ROOT

SOURCES = sorted(
    path
    for pattern in (
        "src/**/*.py", "native/**/*.[ch]", "web/src/*.ts", "tests/**/*.py", "tests/**/*.c",
        "benchmarks/*.py", "benchmarks/*.c", "tools/*.py",
    )
    for path in ROOT.glob(pattern)
)  # fmt: skip
# Terms that contain a retired word, and names that the capture format gives.
ALLOWED = re.compile(r"in_?flight|flight_?recorder|_h$|^TALLY_", re.I)
# Words that are right in some folders: of the format, and of a view that zooms.
RIGHT_IN = {
    "tally": ("native/", "src/ncclscope/capture/", "tests/", "benchmarks/", "tools/generate.py"),
    "zoom": (
        "native/", "src/ncclscope/capture/", "src/ncclscope/web/", "web/", "tests/", "benchmarks/",
        "tools/generate.py", "tools/timeline_pictures.py",
    ),
}  # fmt: skip


@functools.cache
def retired() -> set[str]:
    """The words in the glossary's last section, with their plurals."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    words = set(re.findall(r"`([a-z]+)`", page.partition("\n## Retired\n")[2]))
    assert len(words) > 20
    return words | {f"{word}s" for word in words}


def retired_in(path: Path) -> set[str]:
    """Identifiers of a file that contain a retired word. Names of tests are sentences."""
    name = str(path.relative_to(ROOT))
    words = {word for word in retired() if not name.startswith(RIGHT_IN.get(word.rstrip("s"), ()))}
    suspects = {
        identifier
        for identifier in names_in(path)
        if not identifier.startswith("test_")
        and not name.startswith("native/tests/")
        and words & set(words_of(ALLOWED.sub("_", identifier)))
    }
    return suspects & identifiers_in(path) if suspects else suspects


def test_identifiers_have_no_retired_words() -> None:
    assert not {path: words for path in SOURCES if (words := retired_in(path))}
