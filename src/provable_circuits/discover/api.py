"""``discover``: find a small circuit that is faithful to its network."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from os import PathLike
from types import MappingProxyType
from typing import Any

import torch

from provable_circuits import arguments
from provable_circuits.arguments import flag, instance, refused, time_limit, whole
from provable_circuits.claims.claim import Claim
from provable_circuits.claims.words import failure_words
from provable_circuits.discover.algorithms.binary_search import binary_search
from provable_circuits.discover.algorithms.blocking_sets import blocking_sets
from provable_circuits.discover.algorithms.dual import SmallestBlockingSet
from provable_circuits.discover.algorithms.exhaustive import exhaustive
from provable_circuits.discover.algorithms.greedy import greedy
from provable_circuits.discover.algorithms.hitting_set import hitting_set
from provable_circuits.discover.algorithms.orders import ordered
from provable_circuits.discover.algorithms.repeated_greedy import repeated_greedy
from provable_circuits.discover.certifying import certified_result
from provable_circuits.discover.confirmation import Confirmation, confirm
from provable_circuits.discover.journal.journaled import journaled
from provable_circuits.discover.predicates.distributed import Distributed
from provable_circuits.discover.predicates.monotonicity import (
    CONTRADICTED,
    Monotonicity,
    monotonicity,
)
from provable_circuits.discover.predicates.predicate import Decided, Predicate, Sampled
from provable_circuits.discover.results.explanation import broken_by
from provable_circuits.discover.results.guarantees import minimality, necessity
from provable_circuits.discover.results.result import BlockingSet, Result
from provable_circuits.discover.results.withdrawal import shown_by
from provable_circuits.discover.search import Search
from provable_circuits.errors import ArgumentError, ClaimFailsError
from provable_circuits.network.components import Components
from provable_circuits.network.granularity import Granularity
from provable_circuits.network.graph import Graph
from provable_circuits.progress import Listener
from provable_circuits.verify.certification import Certification, certification_limit
from provable_circuits.verify.configuration import DEFAULT
from provable_circuits.verify.deadline import limits
from provable_circuits.verify.verdict import Refuted, Verdict

Algorithm = Callable[[Search], Any]
"""A search: it asks about circuits through what it is given, which keeps the best one."""

ALGORITHMS: Mapping[str, Algorithm] = MappingProxyType(
    {
        "greedy": greedy,
        "repeated-greedy": repeated_greedy,
        "exhaustive": exhaustive,
        "binary-search": binary_search,
        "blocking-sets": blocking_sets,
        "hitting-set": hitting_set,
    }
)
METHODS = ("proof", "sampling")


def discover(
    graph: Graph,
    claim: Claim,
    granularity: str | Granularity | Components | Sequence[str | Granularity] = "auto",
    algorithm: str | Algorithm = "greedy",
    *,
    method: str = "proof",
    outputs: bool = True,
    shortcuts: bool = False,
    order: str | Sequence[str] = "paper",
    t_max: int = 3,
    local_check: bool = False,
    assume_monotone: bool = False,
    timeout: float | None = None,
    max_nodes: int | None = None,
    budget: float | None = None,
    certify: bool = True,
    certify_timeout: float | None = None,
    workers: int | Executor = 1,
    points: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    journal: str | PathLike[str] | None = None,
    listener: Listener | None = None,
) -> Result:
    """Find a small circuit of ``graph`` for which the claim holds.

    An interrupt (Ctrl-C) ends the search, and the best circuit so far is returned.

    Args:
        graph: the network.
        claim: over which inputs, under which patching, by which metric.
        granularity: what components are, see ``Graph.components``; or the components themselves.
        algorithm: ``"greedy"``, ``"repeated-greedy"``, ``"exhaustive"``, ``"binary-search"``,
            ``"blocking-sets"`` or ``"hitting-set"``; or a function of one's own, which is given
            a ``Search`` to ask.
        method: ``"proof"`` decides each question over the whole of the claim's domains;
            ``"sampling"`` evaluates it at points, the baseline of the field, and proves nothing.
        outputs: whether units of the output layer are components.
        shortcuts: whether projections on shortcut paths are.
        order: in which order components are tried: ``"paper"`` (later layers first),
            ``"attribution"`` (least important first), ``"random"``, or all names in an order of
            one's own.
        t_max: up to which size blocking sets are enumerated (``"blocking-sets"``).
        local_check: ask in the end about each component that is not yet shown to be necessary.
        assume_monotone: take the predicate to be monotone where that is not known; results that
            rest on it say so.
        timeout: seconds for each question (proof); 45 by default, and no limit where ``max_nodes``
            is given.
        max_nodes: nodes of branch and bound for each question (proof): a limit that is repeatable.
        budget: seconds for the whole search, None for no limit; then the best circuit so far is
            returned. Its certificate, or its confirmation by a verifier that reuses nothing, comes
            on top.
        certify: prove what is returned once more as a certificate, and have the checker accept it
            (proof); then ``result.certified``. Where that does not succeed,
            ``result.certification`` says why, and a verifier that reuses nothing confirms the
            circuit instead.
        certify_timeout: seconds for the certificate's proof; by default as many as the search
            took and at least 10, and ``max_nodes`` alone where that is given.
        workers: how many processes answer questions, or an ``Executor`` of ``concurrent.futures``
            (proof).
        points: random points of each domain that are tried besides the unperturbed input
            (sampling).
        seed: the seed of whatever is random.
        device: where bounds are computed (proof).
        journal: a file, made if need be, that keeps each verdict as it is reached (proof): the same
            search goes on from there after whatever ended it, and questions are answered from it
            across searches.
        listener: called with the progress after each answer.

    Raises:
        ClaimFailsError: the network itself violates the claim, so that no circuit can be asked for.
    """
    run = _algorithm(algorithm)
    t_max = whole("t_max", t_max, least=1)
    flag("local_check", local_check)
    flag("certify", certify)
    certification_limit(certify_timeout, None, 0.0)
    _check(graph, claim, assume_monotone, listener)
    components = _components(graph, granularity, outputs, shortcuts)
    if algorithm == "blocking-sets":
        run = partial(blocking_sets, t_max=t_max)
    limit = limits(timeout, max_nodes, DEFAULT.limits.question_seconds)
    decides = _predicate(components, claim, method, limit, points, seed, device, workers)
    predicate = journaled(decides, journal)
    try:
        search = Search(
            predicate,
            ordered(components, claim, order, seed),
            monotonicity(claim, assume_monotone),
            listener,
            _limit("budget", budget),
        )
        _carry_out(search, claim, run)
        circuit = components.full() if search.best is None else search.best
        check = local_check or method == "sampling" or claim.finite  # which cost next to nothing
        kept = necessity(search, circuit, check and search.stopped is None)
        _drop_what_is_contradicted(search)
    finally:
        predicate.close()
    searched, certification, confirmation = search.seconds, None, None
    if search.verdict is not None and search.verdict.proved:
        if certify:
            with search.cut_short():
                search.phase("certifying the circuit")
            within = certification_limit(certify_timeout, limit[1], searched)
            certification = certified_result(search, circuit, claim, kept, within)
        if certification is None or certification.certificate is None:
            with search.cut_short():
                search.phase("confirming the circuit")
            confirmation = confirm(circuit, claim, *limit, searched, seed=seed, device=device)
    settings = {
        "algorithm": algorithm if isinstance(algorithm, str) else _name(algorithm),
        "method": method,
        "granularity": granularity if isinstance(granularity, str) else repr(granularity),
        "outputs": bool(outputs),
        "shortcuts": bool(shortcuts),
        "order": order if isinstance(order, str) else list(order),
        "t_max": t_max if algorithm == "blocking-sets" else None,
        "local_check": bool(local_check),
        "assume_monotone": bool(assume_monotone),
        "timeout": limit[0] if limit[0] < math.inf else None,
        "max_nodes": limit[1],
        "certify": bool(certify) and method == "proof",
        "certify_timeout": None if certify_timeout is None else float(certify_timeout),
        "budget": None if budget is None or math.isinf(budget) else float(budget),
        "workers": type(workers).__name__ if isinstance(workers, Executor) else int(workers),
        "points": int(points) if method == "sampling" else None,
        "seed": int(seed),
    }
    faithful = _faithful(search.verdict, certification, confirmation)
    shown = None if faithful == "undecided" else search.verdict
    return Result(
        circuit=circuit,
        claim=claim,
        faithful=faithful,
        verdict=search.verdict,
        certification=certification,
        confirmation=confirmation,
        kept=kept,
        minimality=minimality(search, circuit, shown, kept),
        lower=search.claimed_lower or None,
        lower_holds="unconditional" if search.monotone.known else "assumed",
        monotone=search.monotone.reason,
        queries=dict(search.queries),
        answers={stage: dict(kinds) for stage, kinds in search.stages.items()},
        timeline=tuple(search.timeline),
        stopped=search.stopped,
        settings=settings,
        seconds=searched,
        lost=search.lost,
        shown=shown_by(search),
    )


def blocking_set(
    graph: Graph,
    claim: Claim,
    granularity: str | Granularity | Components = "auto",
    *,
    outputs: bool = True,
    shortcuts: bool = False,
    assume_monotone: bool = False,
    timeout: float | None = None,
    max_nodes: int | None = None,
    budget: float | None = None,
    workers: int | Executor = 1,
    seed: int = 0,
    device: torch.device | str = "cpu",
    journal: str | PathLike[str] | None = None,
    listener: Listener | None = None,
) -> BlockingSet:
    """Find a smallest set of components without which the network breaks the claim.

    The dual of a smallest circuit; see ``discover`` for the arguments. Where the predicate is not
    known to be monotone, sets are asked about one by one, the small ones first, and the result says
    up to which size that went.
    """
    _check(graph, claim, assume_monotone, listener)
    components = _components(graph, granularity, outputs, shortcuts)
    limit = limits(timeout, max_nodes, DEFAULT.limits.question_seconds)
    decides = _predicate(components, claim, "proof", limit, 0, seed, device, workers)
    predicate = journaled(decides, journal)
    try:
        search = Search(
            predicate,
            components.discovery_order(),
            monotonicity(claim, assume_monotone),
            listener,
            _limit("budget", budget),
        )
        dual = SmallestBlockingSet(search)
        _carry_out(search, claim, lambda _search: dual.run())
        _drop_what_is_contradicted(search)
    finally:
        predicate.close()
    return BlockingSet.of_search(dual)


def _check(graph: Any, claim: Any, assume_monotone: Any, listener: Any) -> None:
    """Refuse what every search is given, if it is of the wrong kind."""
    instance("graph", graph, Graph, "a Graph, as from Graph.from_torch or Graph.from_onnx")
    instance("claim", claim, Claim, "a Claim")
    flag("assume_monotone", assume_monotone)
    if listener is not None and (isinstance(listener, type) or not callable(listener)):
        raise refused("The 'listener' parameter", "a function of a Progress, or None", listener)


def _algorithm(algorithm: str | Algorithm) -> Algorithm:
    if callable(algorithm) and not isinstance(algorithm, type):
        return algorithm
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        expected = f"one of {', '.join(ALGORITHMS)}, or a function of a Search"
        raise refused("The 'algorithm' parameter", expected, algorithm)
    return ALGORITHMS[algorithm]


def _name(algorithm: Algorithm) -> str:
    """The name of a function, or of what kind of object it is."""
    return getattr(algorithm, "__name__", type(algorithm).__name__)


def _components(
    graph: Graph,
    granularity: str | Granularity | Components | Sequence[str | Granularity],
    outputs: bool,
    shortcuts: bool,
) -> Components:
    if not isinstance(granularity, Components):
        return graph.components(granularity, outputs=outputs, shortcuts=shortcuts)
    if granularity.graph is not graph and granularity.graph.digest != graph.digest:
        raise ArgumentError("The 'granularity' parameter holds components of another network.")
    return granularity


def _predicate(
    components: Components,
    claim: Claim,
    method: str,
    limit: tuple[float, int | None],
    points: int,
    seed: int,
    device: torch.device | str,
    workers: int | Executor,
) -> Predicate:
    if not isinstance(method, str) or method not in METHODS:
        raise refused("The 'method' parameter", "'proof' or 'sampling'", method)
    seed = arguments.seed(seed)
    if method == "sampling":
        return Sampled(components, claim, points, seed)
    timeout, max_nodes = limit
    decided = Decided(components, claim, timeout, seed, device, max_nodes)
    if claim.finite:
        return decided
    if isinstance(workers, Executor):
        return Distributed(decided, workers)
    workers = whole("workers", workers, least=1)
    if workers == 1:
        return decided
    return Distributed(decided, workers)


def _carry_out(search: Search, claim: Claim, run: Callable[[Search], Any]) -> None:
    """Check that the network satisfies the claim, then search."""
    with search.cut_short():
        if not search.ask(search.components.full(), "the network itself").refuted:
            search.phase("bounding the network")
            search.predicate.prepare(search.left)
            run(search)
    refuted = search.known(search.components.full())
    if refuted is not None:
        raise ClaimFailsError(_failure(search, claim, refuted), refuted)


def _failure(search: Search, claim: Claim, refuted: Refuted) -> str:
    """Where and how the network itself violates the claim."""
    witness = refuted.witness
    anchor = None if claim.finite else search.components.graph.run(claim.centers, torch.float64)
    how = broken_by(claim, witness, anchor)
    return failure_words(claim.metric, claim.domain(witness.index), witness.index, how)


def _drop_what_is_contradicted(search: Search) -> None:
    """An assumption that the answers contradict supports nothing, not even in hindsight."""
    if search.contradicted:
        search.monotone = Monotonicity(False, False, CONTRADICTED)
        search.timeline = [replace(moment, lower=None) for moment in search.timeline]


def _faithful(
    verdict: Verdict | None,
    certification: Certification | None,
    confirmation: Confirmation | None,
) -> str:
    """What is said of the circuit: proved only if the checker, or a fresh verifier, says so too."""
    if verdict is None:
        return "undecided"
    if certification is not None and certification.certificate is not None:
        return "proved"
    if confirmation is None:
        return "sampled"
    return "proved" if confirmation.verdict.proved else "undecided"


def _limit(name: str, seconds: float | None) -> float | None:
    return None if seconds is None else time_limit(name, seconds)
