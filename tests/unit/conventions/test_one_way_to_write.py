"""Files are written in two modules: output_files, for what users name, and private_directory, for
what lies in captures. Both write aside and rename, so nothing is there by half, and neither writes
through what others put in the way.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

SOURCE = ROOT / "src" / "ncclscope"
HOMES = ("output_files.py", "private_directory.py")
_OWN_TEMPORARY = "in a temporary directory of its own"
_UNDER_WAY = "tasks write parts of a model into a folder that gets its name when it is whole"
# Modules that write otherwise, and why.
APART = {
    "bench/training/job.py": _OWN_TEMPORARY,
    "bench/profilers/trials.py": _OWN_TEMPORARY,
    "bench/training/trials.py": _OWN_TEMPORARY,
    "capture/salvage.py": "with descriptors of directories, and a user's rights",
    "cli/__init__.py": "/dev/null in the place of a closed stdout",
    "cli/standard_streams.py": "standard streams that are closed, or of another encoding",
    "demo/play.py": _OWN_TEMPORARY,
    "export/follow.py": "grows while a job runs; never opens a file that exists",
    "launch/environment.py": "a link to the plugin, in a capture",
    "model/column_files.py": _UNDER_WAY,
    "model/decode_capture.py": "opens metadata to lock it",
    "model/operation_files.py": _UNDER_WAY,
    "model/stages.py": _UNDER_WAY,
    "model/store/checkpoints.py": "packs arrays in memory",
    "model/store/saved_model.py": "the folder of a model, and its lock",
    "native/ncclscope_kernels.py": "runs in a job's Python, without this package",
    "overhead/trials.py": _OWN_TEMPORARY,
    "simulation/job.py": _OWN_TEMPORARY,
    "system/sample_writer.py": "appends for hours; never opens a file that exists",
    "web/session.py": _OWN_TEMPORARY,
}
_ALWAYS = {
    "write_text", "write_bytes", "truncate", "ftruncate", "pwrite", "tofile", "savez",
    "symlink_to", "hardlink_to", "symlink", "link_to", "renames", "rename", "move", "copyfile",
    "copy2", "copytree", "rmtree", "extractall", "mkstemp", "NamedTemporaryFile",
}  # fmt: skip
_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}


def _called(call: ast.Call) -> tuple[str, str]:
    """The name of a function, and what it is taken from."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr, ast.unparse(call.func.value)
    return (call.func.id, "") if isinstance(call.func, ast.Name) else ("", "")


def _modes(call: ast.Call) -> Iterator[str]:
    """Texts among the arguments that can be the mode of `open`."""
    values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    for value in values:
        for node in ast.walk(value):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and text and not set(text) - set("rwxab+t"):
                yield text


def _from_homes(tree: ast.Module) -> set[str]:
    """Names that a module has from one of the two."""
    homes = {f"ncclscope.{name.removesuffix('.py')}" for name in HOMES}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports if node.module in homes for alias in node.names}


def writes(text: str) -> list[str]:
    """Calls and flags of a module with which a file can be written or replaced."""
    tree = ast.parse(text)
    ours, found = _from_homes(tree), []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _FLAGS:
            found.append(node.attr)
        if not isinstance(node, ast.Call):
            continue
        name, source = _called(node)
        opens = name in {"open", "fdopen", "memmap"} and any(
            set(m) & set("wa+") for m in _modes(node)
        )
        # Path.replace has one argument, str.replace two.
        replaces = name == "replace" and (source == "os" or (len(node.args) == 1 and source != ""))
        known = name in _ALWAYS and (source if name == "rename" else source or name not in ours)
        if known or opens or replaces:
            found.append(ast.unparse(node))
    return found


def test_ways_to_write_are_seen() -> None:
    for line in (
        "path.write_text('a')", "open(p, 'w')", "p.open('ab')", "p.open(mode='r+')",
        "os.replace(a, b)", "new.replace(path)", "shutil.move(a, b)", "p.rename(q)",
        "os.open(p, os.O_WRONLY)", "os.fdopen(f, 'wb')", "np.memmap(p, 'u1', 'r+')",
        "gzip.open(p, 'wt')", "p.open('xb' if free else 'wb')", "shutil.rmtree(p)",
    ):  # fmt: skip
        assert writes(line), line
    for line in (
        "open(p)", "p.open('rb')", "p.open('xb')", "text.replace('a', 'b')", "replace(row, a=1)",
        "from ncclscope.output_files import write_text\nwrite_text(p, 'a')",
        "os.open(p, os.O_RDONLY)", "rename(words[0])", "webbrowser.open(address)",
    ):  # fmt: skip
        assert not writes(line), line


def test_files_are_written_in_one_way() -> None:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(Path(path).relative_to(SOURCE))
        if name not in HOMES and (calls := writes(path.read_text())):
            found[name] = calls
    assert {name: calls for name, calls in found.items() if name not in APART} == {}
    assert set(found) >= set(APART), "writes nothing any more: take it off the list"
