"""Removes from a capture what others must not see: command lines, paths, addresses, host names."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ncclscope.capture import layout

# Keys of an identity that help to understand a capture and do not say who made it.
_KEPT = (
    "plugin_version", "mode", "host", "pid", "start_ticks", "boot_id", "pid_namespace",
    "time_namespace", "kernel", "machine", "folder", "nccl_version",
)  # fmt: skip
_KEPT_VARIABLES = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK",
    "TORCHELASTIC_RESTART_COUNT", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NODEID",
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
)  # fmt: skip
_PATH_NAMES = ("_FILE", "_DIR", "_PATH")  # such a variable holds a path, with or without a slash
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+|[0-9a-fA-F]{0,4}:[0-9a-fA-F]{0,4}:")
_PATH = re.compile(r"[^\s=:;,()]*/[^\s:;,()]*")
_NOTE_CUTS = (300, 200, 60)  # the recorder cuts what it names in a note
_SLOT = layout.SLOT_BYTES
_TEXT = layout.slot_struct("Text", "what", "owner", "offset", "length", "text")
_PIECE = layout.slot_places("Text")["text"].count  # bytes of text in a Text slot
_HEAD_BYTES = layout.slot_places("Text")["what"].offset
_METADATA = [layout.KINDS[name] for name in ("Comm", "CommEnd", "Text", "Sync", "Count", "End")]
_TEXTS = (
    layout.TEXT_STRING, layout.TEXT_COMM_NAME, layout.TEXT_GPU_BUS_ID, layout.TEXT_NOTE,
    layout.TEXT_RANGE, layout.TEXT_DOMAIN, layout.TEXT_SCHEMA, layout.TEXT_CATEGORY,
)  # fmt: skip
_CLEANED_TEXTS = (
    layout.TEXT_NOTE, layout.TEXT_RANGE, layout.TEXT_DOMAIN, layout.TEXT_CATEGORY,
)  # fmt: skip
# Texts of ranges that stay: names of functions and modules, with a number behind them, and what
# PyTorch makes of them. A text may hold anything else that a program puts there: prompts, paths.
_NAME = r"[A-Za-z_][\w.]*"
_KEPT_TEXT = re.compile(
    rf"{_NAME}(?: \d+)?"
    rf"|FSDP::\w+(?: for {_NAME})?(?: \({_NAME}\))?"
    rf"|{_NAME}(?:\({_NAME}\))?#{_NAME}",
    re.ASCII,
)
_KEPT_WORD = re.compile(r"|[\d.]+(?:\+\w+)?|NVIDIA [\w -]{1,40}|mesh_\w+|\w+:\d+", re.ASCII)
_PAYLOAD_TYPE = layout.slot_places("Range")["payload_type"].offset
# Fields of slots in streams that can hold anything.
_PRIVATE_FIELDS = {
    "RangeText": ("text",), "RangePayload": ("data",), "Range": ("payload", "payload2"),
}  # fmt: skip


def _is_path(variable: str, value: str) -> bool:
    return "/" in value or value.startswith("~") or variable.endswith(_PATH_NAMES)


class Redaction:
    """How names are replaced, the same in every file of an archive."""

    def __init__(self, identities: Iterable[dict[str, str]], replace_hosts: bool) -> None:
        self._replace = replace_hosts
        self._hosts: dict[str, str] = {}
        self._forms: dict[str, str] = {}  # a host's name in lower case, whole and without domain
        for identity in identities:
            name = identity.get("host", "")
            for form in filter(None, (name.lower(), name.lower().partition(".")[0])):
                self._forms.setdefault(form, self.host(name))
        forms = sorted(map(re.escape, self._forms), key=len, reverse=True)
        whole = rf"(?<![a-z0-9])({'|'.join(forms)})(?![a-z0-9])"
        self._pattern = re.compile(whole if forms else "(?!)", re.IGNORECASE)

    def host(self, name: str) -> str:
        """A host's name in the archive."""
        if not self._replace:
            return name
        return self._hosts.setdefault(name, f"host{len(self._hosts) + 1}")

    def _without_hosts(self, text: str) -> str:
        if not self._replace:
            return text
        return self._pattern.sub(lambda match: self._forms[match[0].lower()], text)

    def folder(self, name: str, host: str) -> str:
        """A process folder's name: it begins with the host's."""
        plain = host.replace("/", "_").replace(".", "_")
        rest = name.removeprefix(plain)
        if rest != name:
            return self.host(host).replace(".", "_") + rest
        return self._without_hosts(name)

    def _variable(self, name: str, value: str) -> str | None:
        """A variable's value in the archive; None: it is left out."""
        if name in _KEPT_VARIABLES:
            return value
        if not name.startswith(("NCCL_", "NCCLSCOPE_")) or name == "NCCL_COMM_ID":
            return None
        if _is_path(name, value) or _ADDRESS.search(value):
            return None
        return self.host(value) if name == "NCCL_HOSTID" else self._without_hosts(value)

    def identity(self, identity: dict[str, str]) -> bytes:
        """A header's identity, cleaned."""
        host = identity.get("host", "")
        clean = {key: value for key, value in identity.items() if key in _KEPT}
        for key, value in identity.items():
            shown = self._variable(key[4:], value) if key.startswith("env.") else None
            if shown is not None:
                clean[key] = shown
        clean["host"] = self.host(host)
        clean["folder"] = self.folder(identity.get("folder", ""), host)
        clean["redacted"] = "1"
        return "".join(f"{key}\0{value}\0" for key, value in clean.items()).encode()

    def range_text(self, text: str, number: int) -> str:
        """A range's text, where it is a name; else a word that says nothing."""
        plain = self._without_hosts(text)
        return plain if _KEPT_TEXT.fullmatch(plain) else f"text{number}"

    def name(self, text: str) -> str:
        """A name, a version or the name of a GPU; else a word that says nothing."""
        plain = self._without_hosts(text)
        return plain if _KEPT_TEXT.fullmatch(plain) or _KEPT_WORD.fullmatch(plain) else "removed"

    def category(self, text: str) -> str:
        """The name of an NVTX category behind the numbers of its domain and its own."""
        domain, _, rest = text.partition("\t")
        number, _, name = rest.partition("\t")
        return f"{domain}\t{number}\t{self.range_text(name, 0)}"

    def note(self, text: str, identity: dict[str, str]) -> str:
        """A note of the recorder, without paths and, where asked, hosts."""
        # Paths of the identity go first: one with spaces in it cannot be found by its form.
        paths = [identity.get(key, "") for key in ("arena", "nccl_library", "capture")]
        paths.append(f"{identity.get('capture', '')}/{identity.get('folder', '')}")
        variables = (item for item in identity.items() if item[0].startswith("env."))
        paths += [value for key, value in variables if _is_path(key, value)]
        cut = {path[:length] for path in paths for length in (len(path), *_NOTE_CUTS)}
        for path in sorted(cut, key=len, reverse=True):
            text = text.replace(path, "<path>") if "/" in path[:-1] else text
        return self._without_hosts(_PATH.sub("<path>", text))


def clean_metadata(
    data: bytearray, start: int, end: int, identity: dict[str, str], redaction: Redaction
) -> None:
    """Cleans metadata slots in place: notes are rewritten, slots of unknown kinds blanked.

    In an arena's ring, slots without a head still hold the text that was there before.
    """
    texts: dict[tuple[int, int], list[int]] = {}
    for at in range(start, end - _SLOT + 1, _SLOT):
        is_text = data[at] == layout.KINDS["Text"]
        what, owner = _TEXT.unpack_from(data, at)[:2]
        if data[at] not in _METADATA or (is_text and what not in _TEXTS):
            data[at + _HEAD_BYTES : at + _SLOT] = bytes(_SLOT - _HEAD_BYTES)
        elif is_text and what in _CLEANED_TEXTS:
            texts.setdefault((what, owner), []).append(at)
    for (what, owner), places in texts.items():
        text = _joined(data, places)
        if what == layout.TEXT_CATEGORY:
            clean = redaction.category(text or "")
        elif what != layout.TEXT_NOTE:
            clean = redaction.range_text(text or "", owner)
        else:
            clean = "(incomplete note removed)" if text is None else redaction.note(text, identity)
        _split(data, places, clean.encode()[: _PIECE * len(places)])


def clean_slots(data: bytearray, start: int, end: int) -> None:
    """Removes texts and payloads of ranges from slots of streams, in place. A payload that is one
    number stays.
    """
    kinds = bytes(data[start:end:_SLOT])
    for kind, fields in _PRIVATE_FIELDS.items():
        places = [layout.slot_places(kind)[name] for name in fields]
        for number in _positions(kinds, layout.KINDS[kind]):
            at = start + number * _SLOT
            if at + _SLOT > end:
                continue  # torn; no reader takes it
            if kind == "Range" and data[at + _PAYLOAD_TYPE] != layout.PAYLOAD_SCHEMA:
                continue
            for place in places:
                data[at + place.offset : at + place.end] = bytes(place.end - place.offset)


def _positions(kinds: bytes, kind: int) -> Iterator[int]:
    """Where a kind is; in a log of events alone that is one search."""
    at = kinds.find(kind)
    while at >= 0:
        yield at
        at = kinds.find(kind, at + 1)


def clean_context(value: Any, redaction: Redaction) -> Any:
    """What a line of context.jsonl says, with texts that are no names replaced."""
    if isinstance(value, dict):
        return {redaction.name(key): clean_context(one, redaction) for key, one in value.items()}
    if isinstance(value, list):
        return [clean_context(one, redaction) for one in value]
    return redaction.name(value) if isinstance(value, str) else value


def _joined(data: bytearray, places: list[int]) -> str | None:
    """A note's text; None where pieces are missing, since half a path cannot be told from words."""
    pieces = sorted((*_TEXT.unpack_from(data, at)[2:], at) for at in places)  # by offset
    places[:] = [at for *_, at in pieces]
    length = pieces[0][1]
    if [offset for offset, *_ in pieces] != [number * _PIECE for number in range(len(pieces))]:
        return None
    text = b"".join(piece for *_, piece, _ in pieces)
    return text[:length].decode("utf-8", "replace") if length <= len(text) else None


def _split(data: bytearray, places: list[int], text: bytes) -> None:
    """Puts a text into the slots of another one; those that are left over hold nothing."""
    for number, at in enumerate(places):
        what, owner = _TEXT.unpack_from(data, at)[:2]
        piece = text[number * _PIECE : (number + 1) * _PIECE]
        # Bytes before the fields are padding of the struct: the head stays as it is.
        packed = _TEXT.pack(what, owner, number * _PIECE, len(text), piece)
        data[at + _HEAD_BYTES : at + _SLOT] = packed[_HEAD_BYTES:]
