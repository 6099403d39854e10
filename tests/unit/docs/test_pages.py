"""Pages say what the program does: every verb has one, with its usage, options and exit codes."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ncclscope.cli import COMMANDS, main, verb_parser
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
OPTION = re.compile(r"(?<![\w-])(--?[A-Za-z][\w-]*)")


def page_of(verb: str) -> str:
    return (DOCS / "verbs" / f"{verb}.md").read_text()


def blocks(text: str) -> list[str]:
    """What is in fences, without their first line's words."""
    return re.findall(r"^```[^\n]*\n(.*?)^```$", text, re.M | re.S)


def usage_of(verb: str) -> str:
    """The first block of a page: how the verb is called."""
    return next(iter(blocks(page_of(verb))), "")


def own_options(verb: str) -> Iterator[tuple[str, ...]]:
    """Spellings of each option."""
    for action in verb_parser(verb)._actions:
        if action.option_strings and action.dest != "help":
            yield tuple(action.option_strings)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_headings_stand_alone(page: Path) -> None:
    """After a table a heading without an empty line is a row of it, and links to it lead nowhere."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    assert not re.findall(r"(?<!-->)(?<!\n)\n(#+ .*)", text)


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verbs_page_begins_with_its_usage(verb: str) -> None:
    assert page_of(verb).startswith(f"# ncclscope {verb}\n")
    usage = usage_of(verb).splitlines()
    assert usage, "no usage"
    assert all(line.startswith((f"ncclscope {verb}", "   ")) for line in usage), usage
    spelled = {option for spellings in own_options(verb) for option in spellings}
    assert set(OPTION.findall(" ".join(usage))) <= spelled | {"--"}


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verbs_page_has_every_option_and_no_other(verb: str) -> None:
    text = page_of(verb)
    said = set(OPTION.findall(text))
    for spellings in own_options(verb):
        assert said & set(spellings), f"{spellings[0]} is not on the page"
    spelled = {option for spellings in own_options(verb) for option in spellings}
    in_tables = re.findall(r"^\| (`-[^|]*)\|", text.replace("\\|", ""), re.M)
    assert set(OPTION.findall(" ".join(in_tables))) <= spelled


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verbs_page_has_its_exit_codes(verb: str) -> None:
    codes = page_of(verb).partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", codes, re.M)[1:]
    assert rows, "no exit codes"
    assert rows[0] in ("0", "the command's")


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_leads_to_the_page_and_names_exit_codes(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert f"docs/verbs/{verb}.md" in said
    codes = page_of(verb).partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    for code in re.findall(r"^\| (\d+) \|", codes, re.M):
        assert re.search(rf"\b{code}\b", said.partition("Exit codes: ")[2]), code


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verb_is_listed(verb: str) -> None:
    assert f"docs/verbs/{verb}.md" in (ROOT / "README.md").read_text()
    assert f"verbs/{verb}.md" in (DOCS / "README.md").read_text()


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    found: set[str] = set()
    for title in re.findall(r"^#+ (.*)$", plain, re.M):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        number = 0
        while (name if not number else f"{name}-{number}") in found:
            number += 1
        found.add(name if not number else f"{name}-{number}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        leads = (page.parent / name) if name else page
        assert leads.exists(), target
        if anchor and leads.suffix == ".md":
            assert anchor in anchors(leads.read_text()), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_options_that_there_are(page: Path) -> None:
    for verb, words in re.findall(r"\bncclscope ([a-z-]+)((?: [^`|#;&)\n]+)?)", page.read_text()):
        if verb in COMMANDS:
            spelled = {option for spellings in own_options(verb) for option in spellings}
            given = re.findall(r"(?<![\w-])--[a-z][\w-]*", words.partition(" -- ")[0])
            assert set(given) <= spelled | {"--help"}, f"{verb}{words}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_to_be_copied_can_be_read(page: Path) -> None:
    for kind, text in re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", page.read_text(), re.M | re.S):
        if kind == "yaml":
            assert yaml.safe_load(text)
        elif kind == "sh":
            parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
            assert not parsed.stderr
        elif kind == "python":
            compile(text.replace("…", "..."), str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_has_120_columns(page: Path) -> None:
    """Tables and what programs print are as wide as they are, and so are results of benchmarks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    text = re.sub(r"^<!-- begin .*?^<!-- end .*?-->$", "", text, flags=re.M | re.S)
    wide = [line for line in text.splitlines() if len(line) > 120 and line[:1] != "|"]
    assert not wide


def test_the_readme_shows_what_the_page_of_diagnose_shows() -> None:
    """The same answer of the same job."""
    block = re.compile(r"^\$ ncclscope diagnose straggler\n.*?^```$", re.M | re.S)
    (shown,) = block.findall((ROOT / "README.md").read_text())
    assert shown == block.findall((DOCS / "verbs" / "diagnose.md").read_text())[0]


def test_every_page_can_be_reached() -> None:
    found, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop().resolve()
        if page in found or page.suffix != ".md":
            continue
        found.add(page)
        ahead += [page.parent / name for name in re.findall(r"\]\(([^)\s#]+)", page.read_text())]
    assert set(map(Path.resolve, PAGES)) <= found


def test_packages_are_installed_by_names_that_pip_knows() -> None:
    """ncclscope is on no index: it is installed from a checkout, or from a wheel."""
    sources = [*(ROOT / "src").rglob("*.py"), *PAGES]
    for path in sources:
        for command in re.findall(r"pip install ([^`\n)#]*)", path.read_text()):
            assert not re.search(r"(^|[\s'\"])ncclscope([\s\[]|$)", command), f"{path}: {command}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_of_the_repository_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    folders = r"(?:src|native|tests|tools|docs|web|benchmarks|dashboards)"
    paths = set(re.findall(rf"`({folders}/[\w./-]*\w)`", text))
    assert not {path for path in paths if not (ROOT / path).exists()}


def test_tests_that_pages_name_exist() -> None:
    """`path/test_file.py::test_name`, by the end of the path, or `test_name` alone."""
    files = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    names = {name for text in files.values() for name in re.findall(r"def (test_\w+)", text)}
    unknown = []
    for page in PAGES:
        text = page.read_text()
        for file, name in re.findall(r"`((?:[\w/]+/)?test_\w+\.py)::(test_\w+)", text):
            named = [t for p, t in files.items() if str(p).endswith(f"/{file}")]
            if not any(f"def {name}" in test for test in named):
                unknown.append((page.name, file, name))
        for name, goes_on in re.findall(r"`(test_[a-z0-9_]+)(…)?`", text):
            if name not in names and not (goes_on and any(n.startswith(name) for n in names)):
                unknown.append((page.name, "", name))
    assert not unknown
