"""docs/schema.md is made of the tables' descriptions."""

import importlib.util
from dataclasses import fields

from ncclscope.model.rows import GpuRow, ProcessRow
from ncclscope.model.schema import GPUS, PROCESSES
from ncclscope.model.sql_views import SHOWN, shown_columns
from tests.support.paths import ROOT

_TOOL = ROOT / "tools" / "schema_page.py"


def test_the_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("schema_page", _TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE.read_text() == tool.page(), "run `python tools/schema_page.py`"


def test_columns_have_one_name_and_a_meaning_each() -> None:
    for table in SHOWN:
        columns = shown_columns(table)
        assert len({column.name for column in columns}) == len(columns)
        assert all(column.meaning for column in columns)


def test_small_tables_have_a_column_for_each_field_of_their_rows() -> None:
    for columns, row in ((PROCESSES, ProcessRow), (GPUS, GpuRow)):
        shown = [column.name for column in columns[1:]]  # the first is the row's number
        assert shown == [field.name for field in fields(row)]
