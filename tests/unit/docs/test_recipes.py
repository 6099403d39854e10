"""Recipes of CONTRIBUTING.md are true: the files they name exist, and lists are those of the code."""

import re
from pathlib import Path

import pytest

from ncclscope.cli import COMMANDS
from ncclscope.diagnose.finding import FAMILIES
from ncclscope.ingest.formats import FORMATS as IMPORTS
from ncclscope.live.metrics import BY_NAME as METRICS
from ncclscope.nccl.events import EVENTS, INTERFACES
from ncclscope.nccl.releases import interface_of
from ncclscope.web.kinds import CALLBACK_KINDS
from tests.support.paths import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(
    re.findall(
        r"^### (.+?)\n(.*?)(?=^### |\Z)",
        TEXT.partition("\n## How to add …\n")[2].partition("\n## ")[0],
        re.M | re.S,
    )
)
EXPECTED = {
    "An interface version", "An event kind", "A diagnose rule", "An export format",
    "An import format", "A column", "A metric", "A verb", "Histogram buckets", "A defect of NCCL",
    "A datatype", "A library with NCCL's interface", "A slot field, a counter, a variable",
}  # fmt: skip
PATH = re.compile(r"`((?:src|native|tests|tools|docs|web|README|pyproject)[\w./-]*)`")


def paths_in(recipe: str) -> set[str]:
    return set(PATH.findall(recipe))


def files_with(pattern: str, *folders: str) -> set[str]:
    """Sources that contain a pattern; generated files are left out."""
    found = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".py", ".c", ".h", ".ts", ".sql") or path.name.startswith("_"):
                continue
            text = path.read_text()
            if re.search(pattern, text) and "do not edit" not in text[:500].lower():
                found.add(str(path.relative_to(ROOT)))
    return found


def test_there_is_a_recipe_for_every_kind_of_change() -> None:
    assert set(RECIPES) == EXPECTED


@pytest.mark.parametrize("name", RECIPES)
def test_files_that_a_recipe_names_exist(name: str) -> None:
    paths = paths_in(RECIPES[name])
    assert paths
    assert not {path for path in paths if not (ROOT / path).exists()}


def test_an_event_kind_touches_the_files_that_its_recipe_names() -> None:
    """As the newest one shows: it is in no file that a new one would not be in."""
    newest = EVENTS[-1]
    constant = re.sub(r"(?<!^)(?=[A-Z])", "_", newest).upper()
    pattern = rf"\b(NCCL_)?({newest}|{constant}|{constant.lower()})\b"
    shown = files_with(pattern, "src", "native/src", "native/include", "web/src")
    assert shown - paths_in(RECIPES["An event kind"]) <= EVENT_KIND_ELSEWHERE


# Files with the newest event kind that another one need not touch, and why.
EVENT_KIND_ELSEWHERE = {
    "native/src/config.c",
    "native/src/event_filter.c",
    "native/src/timing_policy.c",  # only `kernel` has it
    "src/ncclscope/capture/layout.py",
    "src/ncclscope/cli/arguments/ctl.py",  # its examples
    "src/ncclscope/export/callbacks.py",  # short keys of old fields
    "src/ncclscope/nccl/events.py",  # which events give GPU times
    "src/ncclscope/web/callback_rows.py",
    "web/src/colours.ts",
    "web/src/menu.ts",
}


def test_a_datatype_is_in_one_file() -> None:
    """float8, which the simulated NCCL does not have."""
    home = "src/ncclscope/nccl/datatypes.py"
    assert home in files_with("float8", "src")
    assert files_with("float8", "src") <= {home, "src/ncclscope/bench/datatypes.py"}


def test_library_names_are_in_one_file() -> None:
    home = "src/ncclscope/nccl/libraries.py"
    found = files_with(r"[\"']libnccl(\.so|-2)", "src")
    assert home in found
    assert found <= {home, "src/ncclscope/cli/arguments/bench.py"}, "bench names it in its help"


def test_every_family_of_findings_is_on_the_page() -> None:
    page = (ROOT / "docs" / "diagnose.md").read_text()
    assert not [family for family in FAMILIES if f"`{family}`" not in page]


def test_every_rule_is_used_and_its_families_are_listed() -> None:
    folder = ROOT / "src" / "ncclscope" / "diagnose"
    rules = {path.stem: path.read_text() for path in (folder / "rules").glob("[a-z]*.py")}
    diagnosis = (folder / "diagnosis.py").read_text().partition("def diagnose(")[2]
    assert not [name for name in rules if not re.search(rf"\b{name}(\.find\(|,\n)", diagnosis)]
    made = {
        family for text in rules.values() for family in re.findall(r'Finding\(\s*"(\w+)"', text)
    }
    assert made
    assert made <= set(FAMILIES)


def test_every_metric_has_a_value() -> None:
    """Somewhere in `live` besides the catalogue its name is given to what collects values."""
    folder = ROOT / "src" / "ncclscope" / "live"
    code = "".join(path.read_text() for path in folder.glob("*.py") if path.stem != "metrics")
    assert not [name for name in METRICS if f'"{name}"' not in code]


def test_every_event_kind_has_a_place_in_the_timeline() -> None:
    assert sorted(CALLBACK_KINDS) == sorted(EVENTS)


def test_every_interface_version_has_a_release_and_is_on_the_page_of_doctor() -> None:
    assert interface_of((99, 0, 0)) == INTERFACES[-1]
    page = (ROOT / "docs" / "verbs" / "doctor.md").read_text()
    assert re.findall(r"^\| 2\.[^|]* \| v(\d+) \|$", page, re.M) == [str(v) for v in INTERFACES]


def test_every_import_format_has_a_page_and_a_line() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "imports").glob("*.md")}
    assert set(IMPORTS) == pages
    verb = (ROOT / "docs" / "verbs" / "import.md").read_text()
    assert not [name for name in IMPORTS if f"imports/{name}.md" not in verb]


def test_verbs_are_the_modules_that_take_arguments() -> None:
    modules = (ROOT / "src" / "ncclscope" / "cli").rglob("*.py")
    verbs = {path.stem for path in modules if "\ndef add_arguments(" in path.read_text()}
    assert verbs == {verb.replace("-", "_") + "_" * (verb == "import") for verb in COMMANDS}


def test_folders_of_tests_are_named_and_exist() -> None:
    table = TEXT.partition("\n## Tests\n")[2].partition("```")[0]
    named = set(re.findall(r"^\| `([\w/.]+)`", table, re.M))
    assert {"tests/unit", "tests/integration", "tests/browser", "tests/gpu"} <= named
    assert not {path for path in named if not (ROOT / path).exists()} - {"native/tests"}


def test_tests_are_in_folders_that_mirror_the_source() -> None:
    """A folder of tests is a package of ncclscope, or one of the few that are not about one."""
    packages = {
        str(path.parent.relative_to(ROOT / "src" / "ncclscope"))
        for path in (ROOT / "src" / "ncclscope").rglob("__init__.py")
    }
    others = {".", "conventions", "docs", "laboratory", "recorder", "support"}
    for kind in ("unit", "integration"):
        for folder in (ROOT / "tests" / kind).rglob("__init__.py"):
            name = str(folder.parent.relative_to(ROOT / "tests" / kind))
            assert name in packages | others, f"tests/{kind}/{name}"


def test_targets_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.M))
    named = set(re.findall(r"^\| `make ([a-z]+)`", TEXT, re.M))
    assert named - {"generate"} == targets - {"generate"}


def test_ci_runs_lint_and_tests() -> None:
    steps = Path(ROOT / ".ci" / "run").read_text().splitlines()
    assert {"nice -n 19 make lint &", "make test || failed=1", 'wait "$lint" || failed=1'} <= set(
        steps
    )
    assert steps[-1] == 'exit "$failed"'
