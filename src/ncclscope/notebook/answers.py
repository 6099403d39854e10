"""Answers of the verbs as data: a mapping as `--json` prints it, a text, and a page."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ncclscope.analysis.groups import Group
from ncclscope.analysis.summary import Summary
from ncclscope.analysis.waiting.prediction import Prediction
from ncclscope.diagnose.comparison import Comparison
from ncclscope.diagnose.diagnosis import Diagnosis
from ncclscope.diagnose.finding import Finding
from ncclscope.diagnose.hang.verdict import Status, Verdict
from ncclscope.errors import UsageError
from ncclscope.notebook import frames
from ncclscope.notebook.frames import Relation

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_MOST_HTML_ROWS = 50


class Answer(Mapping[str, Any]):
    """What a verb answers. The mapping is the object that its `--json` prints; lists of objects in
    it are tables. Printed, it is the verb's text.
    """

    def __init__(self, data: dict[str, Any], lines: list[str]) -> None:
        self._data = data
        self._lines = lines

    def __getitem__(self, key: str) -> Any:
        return self._data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables."""
        return tuple(name for name, value in self._data.items() if _is_table(value))

    def table(self, name: str) -> Relation:
        """One of its tables as a DuckDB relation."""
        if name not in self.tables:
            listed = ", ".join(self.tables) or "none"
            raise UsageError(f"there is no table {name} in the answer", f"It has {listed}")
        return frames.relation_of(self._data[name])

    def to_pandas(self, name: str) -> "pandas.DataFrame":
        """One of its tables as a pandas data frame."""
        return frames.to_pandas(self.table(name))

    def to_polars(self, name: str) -> "polars.DataFrame":
        """One of its tables as a Polars data frame."""
        return frames.to_polars(self.table(name))

    def to_arrow(self, name: str) -> "pyarrow.Table":
        """One of its tables as an Arrow table."""
        return frames.to_arrow(self.table(name))

    def to_json(self) -> str:
        """The text that the verb's `--json` prints."""
        return json.dumps(self._data, indent=2, allow_nan=False)

    def __repr__(self) -> str:
        return "\n".join(self._lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


class Report(Answer):
    """What `ncclscope report` shows."""

    def __init__(
        self,
        data: dict[str, Any],
        lines: list[str],
        summary: Summary,
        groups: tuple[Group, ...],
        page: str,
    ) -> None:
        super().__init__(data, lines)
        self.summary = summary  # the numbers behind it
        self.groups = groups  # rows of its table of operations
        self._page = page

    def to_html(self) -> str:
        """The page that `report --html` writes."""
        return self._page

    def _repr_html_(self) -> str:
        # In a frame of its own: the page's style is for whole pages.
        page = escape(self._page, quote=True)
        return (
            f'<iframe srcdoc="{page}" sandbox="" width="100%" height="600" '
            'style="border: 1px solid #8884"></iframe>'
        )


class Findings(Answer):
    """What `ncclscope diagnose` finds, the worst first."""

    def __init__(self, data: dict[str, Any], lines: list[str], diagnosis: Diagnosis) -> None:
        super().__init__(data, lines)
        self.findings: tuple[Finding, ...] = diagnosis.findings
        self.missing = diagnosis.missing  # what is not on record; "" for a whole capture

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that are no mere remarks."""
        return tuple(finding for finding in self.findings if finding.severity != "info")

    def _repr_html_(self) -> str:
        shown = self.findings[:_MOST_HTML_ROWS]
        rows = "".join(f"<li>{finding._repr_html_()}</li>" for finding in shown)
        first = escape(self._lines[0]) if self._lines else ""
        return f"<div>{first}<ol>{rows or '<p>nothing found</p>'}</ol></div>"


class JobStatus(Answer):
    """What `ncclscope status` says: whether the job hangs, and by whom."""

    def __init__(self, data: dict[str, Any], lines: list[str], status: Status) -> None:
        super().__init__(data, lines)
        self.hung = status.hung
        self.verdicts: tuple[Verdict, ...] = status.verdicts  # one of each communicator


class JobComparison(Answer):
    """What `ncclscope compare` says about two jobs."""

    def __init__(self, data: dict[str, Any], lines: list[str], comparison: Comparison) -> None:
        super().__init__(data, lines)
        self.verdict = comparison.verdict  # slower, faster, same, unresolved, not comparable
        self.comparison = comparison  # the numbers behind it


class WhatIfAnswer(Answer):
    """What `ncclscope whatif` predicts."""

    def __init__(self, data: dict[str, Any], lines: list[str], prediction: Prediction) -> None:
        super().__init__(data, lines)
        self.prediction = prediction
        self.gained_share = prediction.gained_share  # of the run
