"""Ranks that called different things as the same operation: both sides and the first divergence."""

from shlex import quote

from ncclscope.analysis.divergence import Divergence, RankCall, divergences
from ncclscope.diagnose.finding import CRITICAL, WARNING, Evidence, Finding
from ncclscope.diagnose.rule_context import RuleContext
from ncclscope.humanize import binary_size, plural, ranks_in_words
from ncclscope.model.schema import NONE

_MOST = 8  # communicators
_MOST_SIDES = 4  # in a sentence
_ADVICE = {
    "function": "the program takes different paths on these ranks: look at what decides the branch",
    "size": "the buffers differ between ranks (uneven batches, parameters or shards), or one side "
    "made a call more or less before, and the same number is another call",
    "datatype": "the datatypes differ between ranks: look at mixed precision and casts",
    "root": "ranks give different roots: the root must be the same on all of them",
    "order": "the same calls come in another order: calls from several threads, or sets that are "
    "walked in different orders",
}


def find(context: RuleContext) -> list[Finding]:
    """The first divergence of each communicator."""
    return [_finding(context, first) for first in divergences(context.run, _MOST)]


def _call_in_words(call: RankCall) -> str:
    size = binary_size(call.size_bytes) if call.size_bytes >= 0 else "?"
    root = f" root {call.root}" if call.root != NONE else ""
    return f"{call.function} {size} {call.datatype}{root}".strip()


def _who(context: RuleContext, ranks: tuple[int, ...]) -> str:
    """Ranks, and of a single one where it is."""
    return ranks_in_words(ranks) + (context.where(ranks[0]) if len(ranks) == 1 else "")


def _finding(context: RuleContext, divergence: Divergence) -> Finding:
    name = context.model.communicator_names[divergence.communicator]
    number, times, kind = divergence.number, divergence.operations, divergence.kind
    sides = "; ".join(
        f"{_who(context, side.ranks)} {_call_in_words(side.call)}"
        for side in divergence.sides[:_MOST_SIDES]
    )
    culprits, host_of = divergence.minority, context.run.host_of
    return Finding(
        "mismatch",
        CRITICAL if divergence.in_flight or kind != "size" else WARNING,
        f"ranks disagree on {name} #{number} ({kind}): {sides}",
        _ADVICE[kind],
        kind=kind,
        ranks=culprits,
        hosts=tuple(sorted({host_of[rank] for rank in culprits if rank in host_of})),
        communicators=(name,),
        evidence=(
            Evidence(
                f"{plural(times, 'operation')} of {name} {'differs' if times == 1 else 'differ'}, "
                f"#{number} is the first",
                {
                    "order": number,
                    "sides": [
                        {"ranks": list(side.ranks), "called": _call_in_words(side.call)}
                        for side in divergence.sides
                    ],
                },
                f"ncclscope report {context.path} --comm {quote(name)} --by +rank",
            ),
        ),
        confidence=0.99,
    )
