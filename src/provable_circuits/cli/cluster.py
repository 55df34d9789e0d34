"""Workers on a Dask cluster: reached soon or not at all, and of this version."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

from provable_circuits.errors import ArgumentError, MissingExtraError

REACHED = 4.0
"""Seconds in which a scheduler must answer."""

SCHEMES = ("tcp", "tls", "ws", "wss")
"""How addresses of schedulers begin."""

SILENCED = ("distributed", "distributed.client", "distributed.comm", "tornado", "asyncio")
"""What logs its own troubles; ours are told in a sentence."""


@contextlib.contextmanager
def crew_of(workers: int, address: str | None) -> Iterator[int | Executor]:
    """The workers asked for: how many processes, or those of a cluster.

    Raises:
        ArgumentError: there is no scheduler, or one of its workers cannot do what is asked.
    """
    if address is None:
        yield workers
        return
    check_address(address)
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError("distributed", "dask", "--dask") from None
    for name in SILENCED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=REACHED, set_as_default=False)
    except Exception as error:  # an address fails in many ways
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ArgumentError(f"There is no Dask scheduler at {address!r}: {reason}.") from None
    try:
        check_workers(client)
        yield client.get_executor()
    finally:
        with contextlib.suppress(Exception):  # a scheduler that was lost cannot be left politely
            client.close(timeout=REACHED)


def check_address(address: str) -> None:
    """Refuse an address where nobody listens, before anything is started to speak with it."""
    scheme, _, place = address.rpartition("://")
    if (scheme or "tcp") not in SCHEMES:
        raise ArgumentError(
            f"There is no Dask scheduler at {address[:200]!r}: an address such as tcp://host:8786 "
            "was expected."
        )
    host, _, port = place.partition("/")[0].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=REACHED):
            pass
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "it should be such as tcp://host:8786"
        raise ArgumentError(f"There is no Dask scheduler at {address[:200]!r}: {reason}.") from None


def check_workers(client: Any) -> None:
    """Refuse workers without this package, or with another version of the code that decides."""
    from provable_circuits.discover.journal.keys import code_version

    try:
        found = client.run(code_version, on_error="return")
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ArgumentError(f"The workers of the Dask cluster do not answer: {reason}.") from None
    if not found:
        raise ArgumentError("The Dask cluster has no workers: start some with 'dask worker'.")
    for worker, version in found.items():
        if isinstance(version, Exception):
            raise ArgumentError(
                f"The Dask worker {worker} cannot use provable-circuits "
                f"({type(version).__name__}): install it there, in the same version as here."
            )
        if version != code_version():
            raise ArgumentError(
                f"The Dask worker {worker} has another version of provable-circuits or PyTorch: "
                "install the version of this machine there."
            )
