"""Writes the table of packages in docs/architecture.md: `python -m tools.packages`.

It comes from the first line of each package's docstring.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "ncclscope"
PAGE = ROOT / "docs" / "architecture.md"
_LINE = re.compile(r"(?P<what>.+)\. In: (?P<goes_in>.+?)\. Out: (?P<comes_out>.+)\.")
_BEGIN, _END = "<!-- begin packages -->", "<!-- end packages -->"


def packages() -> list[str]:
    """Names of all packages, lowest layer first: the order in which data passes through them."""
    text = (ROOT / "pyproject.toml").read_text()
    order = re.findall(r"[\w.]+", text.partition("[tool.importlinter]")[2])

    def place(name: str) -> tuple[int, ...]:
        """Where the layers list the package; its stages, if they do, by their own names."""
        top, _, stage = name.partition(".")
        return -order.index(f"ncclscope.{top}"), -(order.index(stage) if stage in order else 0)

    found = [path.parent.relative_to(SOURCE) for path in SOURCE.glob("*/**/__init__.py")]
    names = [str(path).replace("/", ".") for path in found]
    return sorted(names, key=lambda name: (place(name)[0], "." in name, place(name)[1], name))


def first_line(package: str) -> str:
    """The first line of a package's docstring."""
    path = SOURCE / package.replace(".", "/") / "__init__.py"
    return (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]


def parts_of(line: str) -> tuple[str, str, str] | None:
    """What a package is, what goes in, what comes out; None for a line that does not say so."""
    match = _LINE.fullmatch(line)
    return (match["what"], match["goes_in"], match["comes_out"]) if match else None


def table() -> str:
    """All packages as a Markdown table."""
    rows = ["| package | what it is | goes in | comes out |", "|---|---|---|---|"]
    for package in packages():
        what, goes_in, comes_out = parts_of(first_line(package)) or (first_line(package), "", "")
        rows.append(f"| `{package}` | {what} | {goes_in} | {comes_out} |")
    return "\n".join(rows)


def page() -> str:
    """docs/architecture.md with the present table."""
    head, _, rest = PAGE.read_text().partition(_BEGIN)
    return f"{head}{_BEGIN}\n{table()}\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
