"""Reduced proofs: smaller, and accepted by the checker."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import provable_circuits as pc
from provable_circuits.proof.certify import Certificate, certify
from provable_circuits.proof.prover import Plan, Prover, Tree
from provable_circuits.proof.reducing import Branch, Reducer
from provable_circuits.proof.tuning import ProvingTuning


class Nodes:
    """A limit of leaves, and of none once it is over."""

    def __init__(self, most: float = 3000) -> None:
        self.left = most

    def check(self) -> None:
        if self.left < 0:
            raise TimeoutError

    def spend(self, nodes: int) -> None:
        self.left -= nodes
        self.check()


def hard() -> tuple[pc.Claim, pc.Circuit]:
    """A circuit that is faithful by a bound that takes some splits."""
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    graph = pc.Graph.from_torch(net, torch.zeros(1, 6))
    claim = pc.Claim([pc.Ball(torch.zeros(6), 1.0)], pc.Zero(), pc.MaxAbs(0.3))
    return claim, graph.components("neuron").empty()


def easy() -> tuple[pc.Claim, pc.Circuit]:
    """A circuit that is faithful by a backward bound."""
    claim, circuit = hard()
    return pc.Claim(claim.inputs, claim.patching, pc.MaxAbs(30.0)), circuit


def leaves(certificate: Certificate) -> list[dict[str, Any]]:
    trees = json.loads(certificate.files["certificate.json"])["proof"][0]["trees"]
    return [node for tree in trees for node in tree["nodes"] if "close" in node]


def nodes(certificate: Certificate) -> int:
    trees = json.loads(certificate.files["certificate.json"])["proof"][0]["trees"]
    return sum(len(tree["nodes"]) for tree in trees)


@pytest.fixture(scope="module")
def both() -> tuple[Certificate, Certificate]:
    """The certificate of a hard claim, unreduced and reduced."""
    unreduced = certify(*hard(), Nodes(), tuning=ProvingTuning(reduction=0.0))
    return unreduced, certify(*hard(), Nodes())


def test_a_proof_with_splits_becomes_smaller(both: tuple[Certificate, Certificate]) -> None:
    unreduced, reduced = both
    assert all(finding.holds for finding in reduced.findings)
    assert nodes(reduced) <= nodes(unreduced)
    assert reduced.size < unreduced.size


def test_hints_that_are_not_needed_are_dropped(both: tuple[Certificate, Certificate]) -> None:
    unreduced, reduced = both
    assert all("alpha" in leaf for leaf in leaves(unreduced) if leaf != {"close": {}})
    assert {"close": {}} in leaves(reduced)


def padded(patch: pytest.MonkeyPatch) -> None:
    """Have every tree start with two splits that are not needed."""
    old = Prover.plan

    def plan(self: Prover) -> Plan:
        found = old(self)
        place = min(self.bends)
        name = self.problem.nodes[place].name
        first, second = {"split": [name, 0]}, {"split": [name, 1]}
        trees = []
        for tree in found.trees:
            assert tree.nodes == [{"close": {}}], "choose a case that needs no splits"
            leaf = {"close": {"beta": np.zeros((1, 2))}}
            shallow = {"close": {"beta": np.zeros((1, 1))}}
            trees += [Tree([row], [first, second, leaf, leaf, shallow]) for row in tree.objectives]
        self.meter.spent *= 1000
        return Plan(found.tighten, trees)

    patch.setattr(Prover, "plan", plan)


def test_splits_that_are_not_needed_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    padded(monkeypatch)
    unreduced = certify(*easy(), Nodes(), tuning=ProvingTuning(reduction=0.0))
    reduced = certify(*easy(), Nodes())
    assert nodes(unreduced) == 5 * 4
    assert [leaf for leaf in leaves(reduced) if leaf != {"close": {}}] == []
    assert nodes(reduced) == 4
    assert reduced.findings[0].holds


def test_what_the_checker_does_not_accept_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reduction that leaves out too much: the unreduced proof is returned."""

    def ruin(self: Reducer, plan: Plan) -> Plan:
        return Plan([], [Tree(tree.objectives, [{"close": {}}]) for tree in plan.trees])

    monkeypatch.setattr(Reducer, "reduce", ruin)
    certificate = certify(*hard(), Nodes())
    assert certificate.findings[0].holds
    assert nodes(certificate) > 4


def written(plan: Plan) -> list[tuple[list[int], list[int]]]:
    """The objectives of each tree, and which nodes it has."""
    return sorted((tree.objectives, [id(node) for node in tree.nodes]) for tree in plan.trees)


def test_a_limit_that_is_over_costs_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that runs out after the proof was found leaves the proof as it is."""
    reduce = Reducer.reduce
    kept = []

    def late(self: Reducer, plan: Plan) -> Plan:
        self._limit.left = -math.inf  # type: ignore[attr-defined]
        found = reduce(self, plan)
        kept.append(written(found) == written(plan))
        return found

    monkeypatch.setattr(Reducer, "reduce", late)
    assert certify(*hard(), Nodes()).findings[0].holds
    assert kept == [True]


def test_equal_proofs_are_reduced_equally(both: tuple[Certificate, Certificate]) -> None:
    assert certify(*hard(), Nodes()).digest == both[1].digest


def test_objectives_share_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints that both objectives close with are stored once."""
    monkeypatch.setattr(Reducer, "_smaller", lambda self, at, branch, row: branch)
    padded(monkeypatch)
    certificate = certify(*easy(), Nodes())
    trees = json.loads(certificate.files["certificate.json"])["proof"][0]["trees"]
    assert [len(tree["nodes"]) for tree in trees] == [5]
    assert sorted(trees[0]["objectives"]) == [0, 1, 2, 3]


def test_trees_are_read_in_preorder() -> None:
    split: dict[str, Any] = {"split": ["N:x", 0]}
    leaf: dict[str, Any] = {"close": {}}
    written: list[dict[str, Any]] = [split, split, leaf, {"empty": {}}, leaf]
    branch = Branch.read(written)
    assert branch is not None
    assert (branch.size, branch.depth) == (5, 3)
    assert [b.node for b in branch] == written
    wrongs: list[list[dict[str, Any]]]
    wrongs = [[], [split], [split, leaf], [leaf, leaf], [split, leaf, leaf, leaf]]
    for wrong in wrongs:
        assert Branch.read(wrong) is None
