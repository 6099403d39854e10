"""The profilers that a user asks for: NAME[=PATH.so][,VARIABLE=VALUE…]."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ncclscope.bench.profilers.profiler_table import NONE, Profiler, known_profilers
from ncclscope.errors import UsageError

_ALIASES = {"ncclscope": "ncclscope-trace"}
# What is compared where nothing is named, besides what is installed of the others.
_DEFAULT_OWN = ("ncclscope-profile", "ncclscope-trace", "ncclscope-full")
AGAIN = "none again"  # the noise: no plugin, measured a second time


@dataclass(frozen=True, slots=True)
class ProfilerSelection:
    """The profilers to compare, and why others are left out, by name."""

    profilers: tuple[Profiler, ...]
    absent: Mapping[str, str]


def select_profilers(
    requests: Sequence[str], environment: Mapping[str, str], training: bool = False
) -> ProfilerSelection:
    """No plugin, twice, and then what was asked for: by default everything that is installed.

    A profiler that is not installed is named in `absent`. One that the user named with a path that
    does not exist is an error.
    """
    table = known_profilers()
    words = list(requests) or _default_requests(table, training)
    profilers, absent = [], {}
    for word in words:
        profiler = _parse(word, table)
        reason = _why_left_out(profiler, environment, training)
        if reason:
            absent[profiler.name] = reason
        elif profiler.name != NONE:
            profilers.append(_resolved(profiler, environment))
    none = table[NONE]
    again = replace(none, name=AGAIN, title="no plugin, measured a second time: the noise")
    return ProfilerSelection((none, again, *_distinct(profilers)), absent)


def _default_requests(table: Mapping[str, Profiler], training: bool) -> list[str]:
    others = [name for name in table if not name.startswith("ncclscope-")]
    torch_only = [name for name in others if table[name].torch]
    return [
        *("empty", *_DEFAULT_OWN),
        *(name for name in others if name not in (NONE, "empty", *torch_only)),
        *(torch_only if training else ()),
    ]


def _why_left_out(profiler: Profiler, environment: Mapping[str, str], training: bool) -> str:
    if profiler.torch and not training:
        return "sees PyTorch's calls only: compare it with --train"
    absent = profiler.why_absent(environment)
    plugin = _resolved(profiler, environment).variables.get("NCCL_PROFILER_PLUGIN", NONE)
    return absent or ("" if plugin == NONE else why_not_loaded(Path(plugin), environment))


def why_not_loaded(plugin: Path, environment: Mapping[str, str]) -> str:
    """Why the linker refuses a plugin; "" if it does not.

    NCCL goes on without such a plugin, and its runs would look like those of one that records
    nothing and costs nothing. Another process tries, because loading runs the plugin's code.
    """
    code = "import ctypes, os, sys\ntry: ctypes.CDLL(sys.argv[1], os.RTLD_NOW)\n"
    code += "except OSError as error: sys.exit(str(error))"
    tried = subprocess.run(
        [sys.executable, "-c", code, str(plugin)],
        env=dict(environment), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"cannot be loaded: {tried.stderr.strip()}" if tried.returncode == 1 else ""


def _resolved(profiler: Profiler, environment: Mapping[str, str]) -> Profiler:
    """The profiler with the path of its plugin among its variables."""
    if not profiler.library:
        return profiler
    path = profiler.plugin(environment)
    return _with_plugin(profiler, path) if path else profiler


def _with_plugin(profiler: Profiler, path: Path) -> Profiler:
    variables = {**profiler.variables, "NCCL_PROFILER_PLUGIN": str(path)}
    return replace(profiler, variables=variables, library="")


def _parse(word: str, table: Mapping[str, Profiler]) -> Profiler:
    """inspector=/lib/x.so,NCCL_INSPECTOR_DUMP_VERBOSE=1 -> the profiler, so changed."""
    first, *settings = word.split(",")
    name, _, path = first.partition("=")
    name = _ALIASES.get(name, name)
    if name not in table:
        names = ", ".join([*_ALIASES, *table])
        raise UsageError(f"there is no profiler {name or 'without a name'}", f"Known are {names}")
    profiler = table[name]
    if path:
        if not Path(path).is_file():
            raise UsageError(f"cannot load {path}: no such file", f"Give {name}=PATH of its plugin")
        profiler = _with_plugin(profiler, Path(path).resolve())
    for setting in settings:
        variable, equals, value = setting.partition("=")
        if not variable.isidentifier() or not equals:
            hint = "Give NAME, NAME=PATH.so, and variables behind commas: NAME=PATH.so,ENV=VALUE"
            raise UsageError(f"{setting} is no setting of {name}", hint)
        profiler = replace(profiler, variables={**profiler.variables, variable: value})
    return replace(profiler, title=", ".join([profiler.title, *settings]))


def _distinct(profilers: Sequence[Profiler]) -> list[Profiler]:
    """The same profilers, each with a name of its own: a second inspector is `inspector 2`."""
    names: dict[str, int] = {}
    distinct = []
    for profiler in profilers:
        number = names[profiler.name] = names.get(profiler.name, 0) + 1
        plugin = profiler.variables.get("NCCL_PROFILER_PLUGIN", "")
        title = f"{profiler.title} ({Path(plugin).name})" if number > 1 else profiler.title
        name = profiler.name if number == 1 else f"{profiler.name} {number}"
        distinct.append(replace(profiler, name=name, title=title))
    return distinct
