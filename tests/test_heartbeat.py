"""Signs of life: who is silent for too long is stuck, unless the system sees it at work."""

from __future__ import annotations

import multiprocessing
import os
import threading

import pytest

from provable_circuits import heartbeat
from provable_circuits.heartbeat import Heartbeats, Watch


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test moves; no process is seen at work."""
    now = [1000.0]

    class Time:
        @staticmethod
        def monotonic() -> float:
            return now[0]

        @staticmethod
        def sleep(seconds: float) -> None:
            threading.Event().wait()  # the thread gives one sign, and no other

    monkeypatch.setattr(heartbeat, "time", Time)
    monkeypatch.setattr(heartbeat, "at_work", lambda pid: pid == 7)
    return now


def test_silence_is_noticed(moved: list[float]) -> None:
    beats = Heartbeats(multiprocessing.get_context("spawn"))
    watch = Watch(beats)
    beats.begin()
    own = os.getpid()
    assert watch.stuck([own, 6, 7]) == []
    moved[0] += heartbeat.SILENCE
    assert watch.stuck([own, 6, 7]) == []
    moved[0] += 1
    assert watch.stuck([own, 6, 7]) == [own]
    moved[0] += heartbeat.START
    assert watch.stuck([own, 6, 7]) == [own, 6], "6 never gave a sign, 7 is seen at work"


def test_this_process_is_at_work_or_not_known_to_be() -> None:
    assert heartbeat.at_work(os.getpid()) in (True, False)
    assert not heartbeat.at_work(2**30)
