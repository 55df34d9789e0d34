"""Keys differ wherever a verdict may."""

from __future__ import annotations

import pytest
import torch
from tests.discover.journal.searches import question

import provable_circuits as pc
from provable_circuits.discover.journal import keys
from provable_circuits.discover.journal.keys import QuestionSetting


def digest(graph: pc.Graph, claim: pc.Claim, outputs: bool = True, seed: int = 0) -> str:
    setting = QuestionSetting.of(graph.components("neuron", outputs=outputs), claim, {"seed": seed})
    assert setting is not None
    return setting.digest


def test_equal_questions_have_one_key_and_others_another(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, claim = question()
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    other = pc.Graph.from_torch(net, torch.zeros(1, 4))
    first = digest(graph, claim)
    assert digest(*question()) == first
    different = [
        digest(other, claim),
        digest(graph, claim, outputs=False),
        digest(graph, claim, seed=1),
        digest(*question(tolerance=0.06)),
        digest(*question(eps=0.02)),
        digest(*question(pc.Reachable(eps=0.1))),
    ]
    keys.code_version.cache_clear()
    monkeypatch.setattr(keys, "DECIDING", ("verify",))
    different.append(digest(graph, claim))
    keys.code_version.cache_clear()
    assert len({first, *different}) == 8
