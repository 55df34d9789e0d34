"""A predicate that keeps a journal: what was answered before is not asked again.

Nothing that a journal says is trusted. A refutation counts after its witness was replayed, on the
network and the circuit at hand; a proof only leads the search, whose final circuit is proved anew
by a verifier that reuses nothing. An entry that does not stand up is asked about as if it were not
there.

A journal that can no longer be written (a full disk) is given up with a warning, and the search
goes on without it.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from provable_circuits.arguments import refused
from provable_circuits.discover.journal.keys import QuestionSetting
from provable_circuits.discover.journal.store import FAILURES, Entry, VerdictJournal
from provable_circuits.discover.predicates.distributed import Distributed
from provable_circuits.discover.predicates.predicate import Decided, Predicate
from provable_circuits.network.circuit import Circuit
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.verdict import Refuted, Verdict, Witness
from provable_circuits.verify.verifier import Verifier

logger = logging.getLogger(__name__)

T = TypeVar("T")

DERIVED = frozenset({Stage.POOL, Stage.CARRIED, Stage.GROWTH})
"""Stages whose witnesses come from others, which the verifier remembers already."""

STARTS = 16
"""Witnesses of other claims about the network that are tried on circuits of this one."""


class Journaled(Predicate):
    """Answers of another predicate, kept in a journal.

    Args:
        inner: the predicate that decides.
        journal: where answers are kept; it is closed with the predicate.
        setting: what its questions have in common.

    Attributes:
        recalled: how many answers came from the journal.
    """

    def __init__(
        self, inner: Decided | Distributed, journal: VerdictJournal, setting: QuestionSetting
    ) -> None:
        self.inner = inner
        self.components = inner.components
        self.together = inner.together
        self.foresees = inner.foresees
        self.wave = inner.wave
        self.recalled = 0
        local = inner.local if isinstance(inner, Distributed) else inner
        self._decided = local
        self._journal: VerdictJournal | None = journal
        self._setting = setting
        for place, refuted in self._started():
            local.remember(replace(refuted.witness, index=place))

    def ask(self, circuits: Sequence[Circuit], limit: float = math.inf) -> list[Verdict]:
        return [verdict for part in self.stream(circuits, limit) for verdict in part]

    def stream(
        self, circuits: Sequence[Circuit], limit: float = math.inf
    ) -> Iterator[list[Verdict]]:
        known = self._recall(circuits, limit)
        rest = [c for c, verdict in zip(circuits, known, strict=True) if verdict is None]
        parts = self._streamed(rest, limit) if rest else iter(())
        place = 0
        while place < len(circuits):
            ready: list[Verdict] = []
            while place < len(circuits) and (verdict := known[place]) is not None:
                ready.append(verdict)
                place += 1
            if ready:
                yield ready
            if place < len(circuits):
                part = next(parts)
                missing = (i for i in range(place, len(circuits)) if known[i] is None)
                for i, verdict in zip(list(missing), part, strict=False):
                    known[i] = verdict

    def _streamed(self, circuits: Sequence[Circuit], limit: float) -> Iterator[list[Verdict]]:
        """New answers, kept as they come."""
        given = self._limit(limit)
        place = 0
        if len(circuits) == 1:
            parts: Iterator[list[Verdict]] = iter([self.inner.ask(circuits, limit)])
        else:
            parts = self.inner.stream(circuits, limit)
        for part in parts:
            self._keep(circuits[place : place + len(part)], part, given)
            place += len(part)
            yield part

    def screen(self, circuits: Sequence[Circuit]) -> list[Verdict | None]:
        found = self._recall(circuits, math.inf)
        rest = [i for i, verdict in enumerate(found) if verdict is None]
        if rest:
            new = self.inner.screen([circuits[i] for i in rest])
            for i, verdict in zip(rest, new, strict=True):
                found[i] = verdict
                if verdict is not None:
                    self._keep([circuits[i]], [verdict], self._limit(math.inf))
        return found

    def ahead(
        self, circuits: Sequence[Circuit], limit: float = math.inf
    ) -> list[Callable[[], Verdict]]:
        if self.foresees:
            return super().ahead(circuits, limit)  # cheap answers are kept, wanted or not
        given = self._limit(limit)

        def kept(circuit: Circuit, answer: Callable[[], Verdict]) -> Verdict:
            verdict = answer()
            self._keep([circuit], [verdict], given)
            return verdict

        def recalled(verdict: Verdict) -> Verdict:
            return verdict

        known = self._recall(circuits, limit)
        rest = [c for c, verdict in zip(circuits, known, strict=True) if verdict is None]
        asked = iter(self.inner.ahead(rest, limit) if rest else [])
        return [
            partial(kept, circuit, next(asked)) if verdict is None else partial(recalled, verdict)
            for circuit, verdict in zip(circuits, known, strict=True)
        ]

    def carried(
        self, circuits: Sequence[Circuit], refutations: Sequence[Refuted]
    ) -> list[Refuted | None]:
        return self.inner.carried(circuits, refutations)

    def grown(
        self, circuit: Circuit, refuted: Refuted, favour: Tensor
    ) -> list[tuple[Circuit, Refuted]]:
        key = _growth_key(circuit, refuted.witness, favour)
        found = self._guarded(lambda journal: journal.find_growth(self._setting, key))
        if found is not None:
            held = self._replayed([(bits, verdict) for bits, verdict in found])
            if held is not None:
                self.recalled += len(held)
                return held
        grown = self.inner.grown(circuit, refuted, favour)
        entries = [(larger.bits, verdict) for larger, verdict in grown]
        self._guarded(lambda journal: journal.add_growth(self._setting, key, entries))
        return grown

    def prepare(self, limit: float = math.inf) -> None:
        self.inner.prepare(limit)

    def broken(self, circuits: Sequence[Circuit]) -> list[bool]:
        return self.inner.broken(circuits)

    def suspects(self, circuits: Sequence[Circuit]) -> list[bool]:
        return self.inner.suspects(circuits)

    def close(self) -> None:
        self.inner.close()
        if self._journal is not None:
            self._journal.close()

    # --- the journal --------------------------------------------------------------------------

    def _recall(self, circuits: Sequence[Circuit], limit: float) -> list[Verdict | None]:
        """Answers from the journal, refutations replayed."""
        seconds, nodes = self._limit(limit)
        found: list[Verdict | None] = []
        for circuit in circuits:
            entry = self._guarded(partial(_find, self._setting, circuit.bits))
            fits = entry is not None and entry.answers(seconds, nodes)
            found.append(entry.verdict if entry is not None and fits else None)
        refuted = [(i, v) for i, v in enumerate(found) if isinstance(v, Refuted)]
        for (i, _), held in zip(
            refuted, self._replay([circuits[i] for i, _ in refuted], refuted), strict=True
        ):
            found[i] = held
            if held is None:
                logger.warning("A witness in the journal breaks nothing: its question is asked.")
            elif held.stage not in DERIVED:
                self._decided.remember(held.witness)
        self.recalled += sum(verdict is not None for verdict in found)
        return found

    def _replay(
        self, circuits: Sequence[Circuit], refuted: Sequence[tuple[int, Refuted]]
    ) -> list[Refuted | None]:
        """Refutations of these circuits, as far as their witnesses break them here and now."""
        if not circuits:
            return []
        sound = [_fits(verdict.witness, self._decided) for _, verdict in refuted]
        good = [i for i, fits in enumerate(sound) if fits]
        replayed = self.inner.carried([circuits[i] for i in good], [refuted[i][1] for i in good])
        found: list[Refuted | None] = [None] * len(circuits)
        for i, held in zip(good, replayed, strict=True):
            if held is not None:
                found[i] = Refuted(held.witness, refuted[i][1].stage)
        return found

    def _replayed(
        self, grown: Sequence[tuple[int, Verdict]]
    ) -> list[tuple[Circuit, Refuted]] | None:
        """Grown circuits whose refutations hold; None unless all of them do."""
        refuted = [(bits, v) for bits, v in grown if isinstance(v, Refuted)]
        if len(refuted) < len(grown) or any(b >> len(self.components) for b, _ in refuted):
            return None
        circuits = [Circuit(self.components, bits) for bits, _ in refuted]
        held = [v for v in self._replay(circuits, refuted) if v is not None]
        return list(zip(circuits, held, strict=True)) if len(held) == len(grown) else None

    def _keep(
        self,
        circuits: Sequence[Circuit],
        verdicts: Sequence[Verdict],
        given: tuple[float, float],
    ) -> None:
        def add(journal: VerdictJournal) -> None:
            for circuit, verdict in zip(circuits, verdicts, strict=True):
                journal.add(self._setting, circuit.bits, verdict, *given)

        self._guarded(add)

    def _started(self) -> list[tuple[int, Refuted]]:
        """Witnesses of other claims that may break circuits of this one."""
        found = self._guarded(lambda journal: journal.elsewhere(self._setting, STARTS)) or []
        return [
            (place, refuted)
            for place, refuted in found
            if _fits(replace(refuted.witness, index=place), self._decided)
        ]

    def _guarded(self, use: Callable[[VerdictJournal], T]) -> T | None:
        """Use the journal, or give it up for good if it fails."""
        if self._journal is None:
            return None
        try:
            return use(self._journal)
        except FAILURES as error:
            logger.warning(
                "The journal '%s' is given up (%s): the search goes on without it.",
                self._journal.path,
                error,
            )
            self._journal.close()
            self._journal = None
            return None

    def _limit(self, limit: float) -> tuple[float, float]:
        """The limits of a question now: seconds and nodes."""
        nodes = self._decided.max_nodes
        return min(self._decided.timeout, limit), math.inf if nodes is None else nodes


def journaled(inner: Predicate, path: str | PathLike[str] | None) -> Predicate:
    """The predicate with a journal, where one is named and its answers are worth keeping."""
    if path is None or not isinstance(inner, Decided | Distributed):
        return inner
    if not isinstance(path, str | PathLike):
        raise refused("The 'journal' parameter", "the name of a file, or None", path)
    local = inner.local if isinstance(inner, Distributed) else inner
    verifier = local.verifier
    if not isinstance(verifier, Verifier):
        logger.warning("No journal is kept of claims over finite domains.")
        return inner
    settings = {
        "seed": verifier.seed,
        "device": verifier.device.type,
        "attack_steps": verifier.attack_steps,
        "attack_starts": verifier.attack_starts,
        "configuration": repr(verifier.configuration),
    }
    setting = QuestionSetting.of(local.components, local.claim, settings)
    if setting is None:
        logger.warning("The claim holds what has no digest: no journal is kept.")
        return inner
    return Journaled(inner, VerdictJournal(Path(path)), setting)


def _find(setting: QuestionSetting, bits: int, journal: VerdictJournal) -> Entry | None:
    return journal.find(setting, bits)


def _fits(witness: Witness, decided: Decided) -> bool:
    """Whether a witness from outside has the form of one: then it can be replayed."""
    shape = decided.components.graph.input_shape
    claim = decided.claim
    if not isinstance(witness.index, int) or not 0 <= witness.index < len(claim.inputs):
        return False
    points = [witness.z] if witness.patch_input is None else [witness.z, witness.patch_input]
    if not all(_is_point(point, shape) for point in points):
        return False
    if witness.patch_values is None:
        return True
    sites = {site.tensor: site.layer.shape for site in decided.components.sites}
    return isinstance(witness.patch_values, Mapping) and all(
        name in sites and _is_point(value, sites[name])
        for name, value in witness.patch_values.items()
    )


def _is_point(value: object, shape: Sequence[int]) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and tuple(value.shape) == tuple(shape)
        and bool(value.isfinite().all())
    )


def _growth_key(circuit: Circuit, witness: Witness, favour: Tensor) -> str:
    """What a growth depends on."""
    hasher = hashlib.sha256(f"{circuit.bits:x} {witness.index} {witness.constraint}".encode())
    tensors = [favour, witness.z, witness.patch_input, *(witness.patch_values or {}).values()]
    for tensor in tensors:
        if tensor is not None:
            hasher.update(tensor.detach().cpu().double().contiguous().numpy().tobytes())
    return hasher.hexdigest()
