"""Connections of one process share a database, and nothing that they make in it."""

import os

import duckdb
import numpy as np
import pytest

from ncclscope.model import sql_views
from ncclscope.model.sql_views import open_connection, open_database


def test_what_a_connection_makes_is_its_own_and_goes_with_it() -> None:
    with open_connection() as one, open_connection() as other:
        for connection, name in ((one, "a"), (other, "b")):
            connection.register("raw", {"number": np.arange(3)})
            connection.execute(f"create temp type name as enum ('{name}')")
            connection.execute(f"create temp table t as select cast('{name}' as name) from raw")
        assert one.execute("from t").fetchall() == [("a",)] * 3
        assert other.execute("from t").fetchall() == [("b",)] * 3
    with open_connection() as third:
        for table in ("t", "raw"):
            with pytest.raises(duckdb.CatalogException):
                third.execute(f"from {table}")


def test_what_users_make_is_not_seen_elsewhere() -> None:
    with open_database() as users, open_connection() as ours:
        users.execute("create table t as select 1")
        with pytest.raises(duckdb.CatalogException):
            ours.execute("from t")


def test_a_database_that_is_of_no_use_is_made_again() -> None:
    sql_views._database(os.getpid()).close()
    with open_connection() as connection:
        assert connection.execute("select 1").fetchall() == [(1,)]


def test_a_fork_has_a_database_of_its_own() -> None:
    with open_connection() as connection:
        connection.execute("select 1")
        child = os.fork()
        if child == 0:
            with open_connection() as own:
                found = own.execute("select sum(range) from range(1000000)").fetchall()
            os._exit(int(found != [(499999500000,)]))
        assert os.waitpid(child, 0)[1] == 0
