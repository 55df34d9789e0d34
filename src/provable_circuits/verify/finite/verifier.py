"""The verifier of claims over finite domains.

Each input is decided by an enclosure of its own, rounding included; *Proved* means on each of them.
A question goes through

    remembered hard inputs   a few rows at which earlier circuits failed      -> Refuted
    the affine tail          outputs of the base circuit plus a few rows      -> Proved, Refuted
    propagation              chunk by chunk, from what the base circuit has   -> Proved, Refuted

The base is the circuit that was proved last: tensors that a change at some site reads but does not
change are kept for it. A refutation is replayed at its input alone, from nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from provable_circuits import arguments
from provable_circuits.arguments import instance, refused
from provable_circuits.claims.claim import Claim
from provable_circuits.claims.metrics import LogitDifference, MaxAbs, Norm
from provable_circuits.errors import ArgumentError
from provable_circuits.network.circuit import Circuit
from provable_circuits.network.components import Components
from provable_circuits.network.graph import Graph, Node
from provable_circuits.network.narrowing import narrowed
from provable_circuits.network.ops import Slice
from provable_circuits.rounding import Interval, down, up
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline, OutOfTime, limits
from provable_circuits.verify.finite.comparison import MetricBounds
from provable_circuits.verify.finite.propagation import Patches, Propagation
from provable_circuits.verify.finite.tail import Outputs, Tail, tail_of
from provable_circuits.verify.outcome import Reason
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.verdict import Proved, Refuted, Undecided, Verdict, Witness


class FiniteVerifier:
    """Decides circuits of one network under one claim over finite domains.

    Args:
        components: the components that circuits are sets of.
        claim: the claim; its domains are finite.
        reuse: whether a question may start from what earlier ones showed.
        seed: not used: nothing here is random.
        device: not used: everything is computed on the CPU.
        configuration: the limits of a question.
    """

    small = False
    together = 1

    def __init__(
        self,
        components: Components,
        claim: Claim,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        reuse: bool = True,
        configuration: Configuration = DEFAULT,
    ) -> None:
        expected = "Components, as from graph.components()"
        instance("components", components, Components, expected, "FiniteVerifier")
        claim.check(components.graph)
        self.components, self.claim, self.reuse = components, claim, reuse
        self.seed, self.device = arguments.seed(seed), torch.device("cpu")
        self.configuration, self._tuning = configuration, configuration.finite
        self.points = claim.centers
        self.positions = None if claim.positions is None else torch.tensor(claim.positions)
        patches = _patches(components, claim)
        self.whole = Propagation(components, patches)
        self.propagation, self._selected = _narrowed(components, patches, claim)
        self.forget()

    def forget(self) -> None:
        """Forget what earlier questions showed."""
        self._base: int | None = None
        self._bound = math.inf
        self._cache: dict[str, Interval] = {}
        self._output: Outputs | None = None
        self._comparison: MetricBounds | None = None
        self._hard: list[int] = []
        self._tails: dict[str, Tail | None] = {}

    def prepare(self, timeout: float | None = None) -> None:
        """Enclose the network itself."""
        seconds, _ = limits(timeout, None, math.inf)
        try:
            self._network(Deadline.after(seconds))
        except OutOfTime:
            return

    def ask(
        self,
        circuit: Circuit,
        timeout: float | None = None,
        max_nodes: int | None = None,
        budget: float | None = None,
    ) -> Verdict:
        """Prove or refute the claim of ``circuit``; nodes are inputs that are enclosed anew."""
        usual = self.configuration.limits.question_seconds
        seconds, max_nodes = limits(timeout, max_nodes, usual)
        deadline = Deadline.after(seconds, max_nodes, budget)
        circuit = self._own(circuit)
        if not self.reuse:
            self.forget()
        try:
            with deadline.shared():
                self._network(deadline)
            return self._answer(circuit, deadline)
        except OutOfTime as limit:
            return Undecided(limit.reason, Stage.FINITE)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
                raise
            return Undecided(Reason.MEMORY, Stage.FINITE)

    def screen(
        self, circuits: Sequence[Circuit], timeout: float | None = None
    ) -> list[Verdict | None]:
        """Nothing is cheaper for many at once."""
        return [None] * len(circuits)

    def broken(self, circuits: Sequence[Circuit]) -> list[bool]:
        """Which circuits remembered inputs break."""
        return [self._at_hard(self._own(circuit)) is not None for circuit in circuits]

    suspects = broken

    def carried(
        self, circuits: Sequence[Circuit], witnesses: Sequence[Witness]
    ) -> list[Refuted | None]:
        """Witnesses of other circuits, each tried on one of these; None where it fails."""
        found: list[Refuted | None] = []
        for circuit, witness in zip(circuits, witnesses, strict=True):
            replayed = self._replay(self._own(circuit), witness.index)
            found.append(None if replayed is None else Refuted(replayed, Stage.CARRIED))
        return found

    def grown(
        self, circuit: Circuit, witness: Witness, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        """Nothing."""
        return []

    def _own(self, circuit: Circuit) -> Circuit:
        if not isinstance(circuit, Circuit):
            raise refused("The 'circuit' parameter", "a circuit", circuit)
        if circuit.components is self.components or circuit.components == self.components:
            return circuit
        return self.components.circuit(circuit.names)

    # The network and the base circuit

    def _network(self, deadline: Deadline) -> MetricBounds:
        """Enclosures of the network's outputs, and what the claim compares them with."""
        if self._comparison is None:
            full = self.components.full()
            names = self.propagation.frontier if self._caches else ()
            output, kept = self._pass({}, {}, names, deadline)
            self._comparison = MetricBounds.of(self.claim, output)
            _, most = self._comparison.bounds(output, slice(None))
            if self._equality or bool(self._comparison.holds(most).all()):
                self._become(full.bits, Outputs.of(output), kept, float(most.max()))
        return self._comparison

    @property
    def _caches(self) -> bool:
        graph = self.propagation.graph
        numbers = sum(math.prod(graph[name].shape) for name in self.propagation.frontier)
        return self.reuse and 2 * numbers * len(self.points) <= self._tuning.cache_numbers

    @property
    def _equality(self) -> bool:
        """Whether the network satisfies the claim by definition."""
        return isinstance(self.claim.metric, LogitDifference | MaxAbs | Norm)

    def _become(
        self, bits: int, output: Outputs, cache: Mapping[str, Interval], bound: float
    ) -> None:
        """Make a proved circuit the base of the next questions."""
        if self.reuse:
            self._base, self._output, self._bound = bits, output, bound
            self._cache.update(cache)

    def _chunks(self) -> list[slice]:
        largest = max(math.prod(node.shape) for node in self.propagation.graph.nodes)
        size = max(1, self._tuning.chunk_numbers // largest)
        return [slice(i, i + size) for i in range(0, len(self.points), size)]

    def _pass(
        self,
        masks: Mapping[str, Tensor],
        held: Mapping[str, Interval],
        names: Sequence[str],
        deadline: Deadline,
    ) -> tuple[Interval, dict[str, Interval]]:
        """Outputs at all inputs, and other tensors by name."""
        parts = []
        for rows in self._chunks():
            deadline.spend(0)
            parts.append(self._rows(rows, masks, held, names))
        output = _joined([part[0] for part in parts])
        return output, {name: _joined([part[1][name] for part in parts]) for name in names}

    def _rows(
        self,
        rows: slice | Tensor,
        masks: Mapping[str, Tensor],
        held: Mapping[str, Interval],
        names: Sequence[str] = (),
    ) -> tuple[Interval, dict[str, Interval]]:
        """Outputs at some inputs, [n, positions, outputs], and other tensors by name."""
        points = self.points[rows]
        parts = {name: (low[rows], high[rows]) for name, (low, high) in held.items()}
        output = self.propagation.graph.outputs[0]
        found = self.propagation.run(points, masks, [output, *names], parts)
        positions = None if self._selected else self.positions
        return _by_position(found[output], len(points), positions), {n: found[n] for n in names}

    # One question

    def _answer(self, circuit: Circuit, deadline: Deadline) -> Verdict:
        if circuit == self.components.full() and self._equality:
            tolerance = self.claim.metric.tolerance  # type: ignore[attr-defined]
            return Proved(-float(tolerance), Stage.IDENTICAL)
        if circuit.bits == self._base:
            return Proved(self._bound, Stage.IDENTICAL)
        hard = self._at_hard(circuit)
        if hard is not None:
            return hard
        masks = self.propagation.masks(circuit.bits)
        changed = self._changed(masks)
        if changed is not None and len(changed) == 1:
            (name,) = changed
            verdict = self._by_tail(circuit, name, changed[name])
            if verdict is not None:
                return verdict
        return self._by_pass(circuit, masks, changed, deadline)

    def _changed(self, masks: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """The units of each site that differ from the base; None where there is no base."""
        if self._base is None or not self._caches:
            return None
        before = self.propagation.masks(self._base)
        found = {}
        for site in self.propagation.components.sites:
            whole = torch.ones((1, *site.labels.shape), dtype=torch.bool)
            ours = masks.get(site.tensor, whole)
            theirs = before.get(site.tensor, whole)
            if not torch.equal(ours, theirs):
                size = (1, *site.layer.shape)
                both = (ours != theirs).expand(size).flatten().nonzero().flatten()
                found[site.tensor] = both
        return found

    def _held(self, changed: Mapping[str, Tensor] | None) -> dict[str, Interval]:
        """What the base and a circuit that differs at these sites have in common."""
        if changed is None:
            return {}
        touched = set().union(*(self.propagation.downstream[name] - {name} for name in changed))
        return {name: ends for name, ends in self._cache.items() if name not in touched}

    def _at_hard(self, circuit: Circuit) -> Refuted | None:
        """A refutation at a remembered input."""
        if not self._hard or self._comparison is None:
            return None
        rows = torch.tensor(self._hard)
        masks = self.propagation.masks(circuit.bits)
        output, _ = self._rows(rows, masks, self._held(self._changed(masks)))
        least, _ = self._comparison.bounds(output, rows)
        worst = int(least.argmax())
        if not bool(self._comparison.fails(least[worst])):
            return None
        index = int(rows[worst])
        witness = self._replay(circuit, index)
        if witness is None:
            return None
        self._remember([index])
        return Refuted(witness, Stage.POOL)

    def _remember(self, rows: Sequence[int]) -> None:
        if self.reuse:
            kept = [row for row in self._hard if row not in rows]
            self._hard = [*rows, *kept][: self._tuning.remembered]

    def _by_tail(self, circuit: Circuit, name: str, units: Tensor) -> Verdict | None:
        """The answer by an affine tail; None where there is none or it does not decide."""
        if self._output is None or self._comparison is None:
            return None
        if name not in self._tails:
            sites = {site.tensor: site for site in self.propagation.components.sites}
            positions = None if self._selected else self.positions
            self._tails[name] = tail_of(
                self.propagation, sites[name], positions, self._tuning.tail_numbers
            )
        tail = self._tails[name]
        if tail is None:
            return None
        units = units[tail.matters[units]]
        before = self.propagation.masks(self._base or 0).get(name)
        value = tuple(end.flatten(1)[:, units] for end in self._cache[name])
        shape = self.propagation.graph[name].shape
        patch = tuple(
            end.expand(1, *shape).flatten(1)[:, units] for end in self.propagation.patches[name]
        )
        was_kept = torch.ones((1, *shape), dtype=torch.bool) if before is None else before
        was_kept = was_kept.expand(1, *shape).flatten(1)[:, units]
        old = [torch.where(was_kept, v, p) for v, p in zip(value, patch, strict=True)]
        new = [torch.where(was_kept, p, v) for v, p in zip(value, patch, strict=True)]
        if all(torch.equal(o, n) for o, n in zip(old, new, strict=True)) and torch.equal(*old):
            self._become(circuit.bits, self._output, {}, self._bound)
            return Proved(self._bound, Stage.REDUNDANT)
        change = (down(new[0] - old[1]), up(new[1] - old[0]))
        output = tail.moved(self._output, change, units)
        least, most = self._comparison.around(output)
        if bool(self._comparison.holds(most).all()):
            bound = float(most.max())
            self._become(circuit.bits, output, {}, bound)
            return Proved(bound, Stage.FINITE)
        return self._refuted(circuit, least, 0)

    def _refuted(self, circuit: Circuit, least: Tensor, start: int) -> Refuted | None:
        """A refutation at the worst of some inputs, if one certainly fails."""
        comparison = self._network(Deadline())
        worst = least.topk(min(4, len(least))).indices
        failing = [int(i) for i in worst if bool(comparison.fails(least[i]))]
        for place in failing:
            witness = self._replay(circuit, start + place)
            if witness is not None:
                self._remember([start + i for i in failing])
                return Refuted(witness, Stage.FINITE)
        return None

    def _by_pass(
        self,
        circuit: Circuit,
        masks: Mapping[str, Tensor],
        changed: Mapping[str, Tensor] | None,
        deadline: Deadline,
    ) -> Verdict:
        """The answer by propagation, chunk by chunk."""
        comparison = self._network(deadline)
        held = self._held(changed)
        names = self.propagation.frontier if self._caches else ()
        anew = [name for name in names if name not in held]
        parts, bound, close = [], -math.inf, []
        for rows in self._chunks():
            deadline.check()
            deadline.spend(len(self.points[rows]))
            output, kept = self._rows(rows, masks, held, anew)
            least, most = comparison.bounds(output, rows)
            refuted = self._refuted(circuit, least, rows.start)
            if refuted is not None:
                return refuted
            open_ = (~comparison.holds(most)).nonzero().flatten()
            close += [rows.start + int(i) for i in open_[: self._tuning.close]]
            bound = max(bound, float(most.max()))
            parts.append((output, kept))
        if close:
            tied = self._tied(circuit, close)
            return Undecided(Reason.TOO_CLOSE, Stage.FINITE, bound) if tied is None else tied
        cache = {name: _joined([part[1][name] for part in parts]) for name in anew}
        outputs = Outputs.of(_joined([part[0] for part in parts]))
        self._become(circuit.bits, outputs, cache, bound)
        return Proved(bound, Stage.FINITE)

    def _tied(self, circuit: Circuit, close: Sequence[int]) -> Refuted | None:
        """A refutation at an input that is too close to call but for exact zeros."""
        for index in close[: self._tuning.close]:
            witness = self._replay(circuit, index)
            if witness is not None:
                self._remember([index])
                return Refuted(witness, Stage.FINITE)
        return None

    def _replay(self, circuit: Circuit, index: int) -> Witness | None:
        """The witness at one input: network and circuit as given, enclosed from nothing."""
        comparison = self._network(Deadline())
        row, point = torch.tensor([index]), self.points[index : index + 1]
        name = self.components.graph.outputs[0]
        masks = self.whole.masks(circuit.bits)
        found = self.whole.run(point, masks, [name], careful=True)
        output = _by_position(found[name], 1, self.positions)
        least, _ = comparison.by_position(output, row)
        place = int(least[0].argmax())
        if not bool(comparison.fails(least[0, place])):
            return None
        low, high = (end[index, place] for end in comparison.reference)
        named = None
        if comparison.targets.shape[1] > 1 or self.claim.positions is not None:
            named = place if self.claim.positions is None else self.claim.positions[place]
        return Witness(
            index=index,
            z=self.points[index],
            excess=float(least[0, place]),
            reference=low + (high - low) * 0.5,
            output=(output[0] + (output[1] - output[0]) * 0.5)[0, place],
            position=named,
        )


def _by_position(ends: Interval, count: int, positions: Tensor | None) -> Interval:
    """Outputs as [inputs, positions, outputs], of the positions that count."""
    lower, upper = (end.expand(count, *end.shape[1:]) for end in ends)
    if lower.ndim == 2:
        lower, upper = lower.unsqueeze(1), upper.unsqueeze(1)
    return (lower, upper) if positions is None else (lower[:, positions], upper[:, positions])


def _narrowed(components: Components, patches: Patches, claim: Claim) -> tuple[Propagation, bool]:
    """The network without the positions that do not count, and whether that selects them."""
    graph, named = components.graph, claim.positions
    run = named is not None and list(named) == list(range(named[0], named[0] + len(named)))
    if named is not None and run:
        output = graph.outputs[0]
        select = Slice(0, named[0], named[-1] + 1)
        shape = select.shape(graph[output].shape)
        node = Node(f"{output}~positions", select, (output,), shape)
        graph = Graph([*graph.nodes, node], graph.inputs, [node.name])
    narrow, parts = narrowed(graph)
    sites, ends = [], {}
    for site in components.sites:
        part = parts.get(site.tensor)
        if site.tensor not in narrow:  # its output is never read where it counts
            continue
        rank = len(site.layer.shape)
        low, high = patches[site.tensor]
        labels = site.labels
        if part is not None:
            low, high = part.of(low, rank), part.of(high, rank)
            labels = part.of(labels, rank)
        shape = narrow[site.tensor].shape
        sites.append(replace(site, layer=replace(site.layer, shape=shape), labels=labels))
        ends[site.tensor] = (low, high)
    return Propagation(Components(narrow, sites), ends), bool(named is not None and run)


def _joined(parts: Sequence[Interval]) -> Interval:
    lower, upper = zip(*parts, strict=True)
    return torch.cat(lower), torch.cat(upper)


def _patches(components: Components, claim: Claim) -> Patches:
    """The ends of every site's patch."""
    patching = claim.patching
    if patching.is_fixed:
        values = patching.values(components)
        return {
            site.tensor: (values[site.tensor].double(), values[site.tensor].double())
            for site in components.sites
        }
    raise ArgumentError(
        "Over finite domains the patching must be Zero, Mean or Constant. "
        f"Got {patching!r} instead."
    )
