"""Clusters that cannot be used are told apart, in a sentence each."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from provable_circuits.cli import cluster
from provable_circuits.cli.cluster import check_address, check_workers
from provable_circuits.discover.journal.keys import code_version
from provable_circuits.errors import ArgumentError


@pytest.mark.parametrize("address", ["nonsense", "", "foo://x:1", "tcp://127.0.0.1:x", "x:" * 400])
def test_nonsense_is_refused(address: str) -> None:
    with pytest.raises(ArgumentError, match="There is no Dask scheduler at") as error:
        check_address(address)
    assert len(str(error.value)) < 500


def test_where_nobody_listens_is_refused_and_where_somebody_does_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        check_address(address)
    with pytest.raises(ArgumentError, match="There is no Dask scheduler at"):
        check_address(address)


class Cluster:
    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def run(self, function: Any, on_error: str) -> dict[str, Any]:
        assert on_error == "return"
        return self.found


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "has no workers"),
        ({"tcp://a:1": "older"}, "worker tcp://a:1 has another version"),
        ({"tcp://a:1": ModuleNotFoundError("no")}, r"tcp://a:1 cannot use .*\(ModuleNotFound"),
    ],
)
def test_workers_that_cannot_decide_are_refused_by_name(
    found: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        check_workers(Cluster(found))
    check_workers(Cluster({"tcp://a:1": code_version()}))
    assert cluster.REACHED < 5
