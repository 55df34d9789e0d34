"""Plain properties: is there an input of the box whose output must not be?

The cases of each box become one problem (``problem``), the stages of ``verify`` decide it as they
decide claims, and the answer is told in the property's words:

    linear bounds, constraint by constraint -> corners -> PGD -> input splits where few inputs vary
    -> optimised alpha -> branch and bound on ReLUs -> neuron hulls -> exact arithmetic, where an
    output may touch its bound

``holds`` rests on rigorous bounds over the box rounded outward; ``violated`` on a point inside the
box as written, at which interval arithmetic on the network as given satisfies every constraint. In
exact arithmetic both rest on the rational numbers of the network and of the file.

    >>> from provable_circuits.network.graph import GraphBuilder
    >>> from provable_circuits.network.ops import ReLU
    >>> from provable_circuits.properties.vnnlib import parse_property
    >>> builder = GraphBuilder()
    >>> graph = builder.build([builder.add("relu", ReLU(), builder.input("x", (1,)))])
    >>> text = '''(declare-const X_0 Real) (declare-const Y_0 Real)
    ...           (assert (>= X_0 -1.0)) (assert (<= X_0 1.0)) (assert (>= Y_0 {}))'''
    >>> decide(graph, parse_property(text.format("1.5"))).status
    'holds'
    >>> decide(graph, parse_property(text.format("1.0"))).counterexample
    (tensor([1.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike

import torch
from torch import Tensor

from provable_circuits.network.graph import Graph
from provable_circuits.properties.counterexample import Counterexample
from provable_circuits.properties.problem import definitions, unconditional
from provable_circuits.properties.related import constrained, own_outputs
from provable_circuits.properties.status import PropertyStatus
from provable_circuits.properties.vnnlib import Property, read_property
from provable_circuits.rounding import InconsistentBoundsError
from provable_circuits.verify.attacking.pgd import Effort
from provable_circuits.verify.configuration import DEFAULT, Configuration
from provable_circuits.verify.deadline import Deadline, OutOfNodes, OutOfTime, limits
from provable_circuits.verify.outcome import Outcome, Reason
from provable_circuits.verify.reuse.memory import Memory
from provable_circuits.verify.stage import Stage
from provable_circuits.verify.stages.answer import Answer, Means
from provable_circuits.verify.stages.pipeline import decide as decide_all
from provable_circuits.verify.stages.question import Question
from provable_circuits.verify.verifier import out_of_memory

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, eq=False)
class PropertyVerdict:
    """The answer about one property.

    Attributes:
        status: ``holds``, ``violated``, ``unknown`` or ``timeout``.
        counterexample: for ``violated`` an input and its output, per sample, float64.
        reason: why, where it is ``unknown`` or ``timeout``; else the stage that decided.
        seconds: how long it took.
        decimals: the input in decimals that lie inside the box as written and meet what it asks
            for. Each reads as the float64 number of ``counterexample``, unless ``note`` says that
            there is none; it may be a quotient then.
        note: what is to be known about the counterexample.
    """

    status: PropertyStatus
    counterexample: tuple[Tensor, Tensor] | None
    reason: str
    seconds: float
    decimals: tuple[str, ...] | None = None
    note: str = ""

    def __bool__(self) -> bool:
        raise TypeError("A verdict is not a boolean: compare its status.")


def decide(
    graph: Graph,
    question: Property,
    timeout: float | None = None,
    seed: int = 0,
    *,
    max_nodes: int | None = None,
    configuration: Configuration = DEFAULT,
) -> PropertyVerdict:
    """Whether ``graph`` keeps clear of everything that ``question`` describes.

    Args:
        graph: the network.
        question: what must not happen.
        timeout: seconds after which the answer is ``timeout``; 60 by default, and none where
            ``max_nodes`` is given.
        seed: the seed of random starts of the attack.
        max_nodes: nodes after which the answer is ``timeout``: a limit that is repeatable.
        configuration: the tuning of the stages.

    Raises:
        PropertyError: the property is about another number of inputs or outputs.
    """
    question.check(graph)

    def answer(deadline: Deadline) -> Answer[Counterexample]:
        return _answer(graph, question, deadline, seed, configuration)

    return _within(timeout, max_nodes, configuration, answer)


def decide_files(
    model: str | PathLike[str],
    question: str | PathLike[str],
    timeout: float | None = None,
    seed: int = 0,
    *,
    max_nodes: int | None = None,
    configuration: Configuration = DEFAULT,
) -> PropertyVerdict:
    """The same for an ONNX and a VNN-LIB file; the time of reading both counts.

    Args:
        model: the network.
        question: what must not happen.
        timeout: seconds from now on, see ``decide``.
        seed: the seed of random starts of the attack.
        max_nodes: a limit in nodes, see ``decide``.
        configuration: the tuning of the stages.

    Raises:
        ModelError, PropertyError: the files are no network and no property that fits it.
    """

    def answer(deadline: Deadline) -> Answer[Counterexample]:
        graph = Graph.from_onnx(model)
        deadline.check()
        read = read_property(question, deadline)
        read.check(graph)
        return _answer(graph, read, deadline, seed, configuration)

    return _within(timeout, max_nodes, configuration, answer)


def _within(
    timeout: float | None,
    max_nodes: int | None,
    configuration: Configuration,
    ask: Callable[[Deadline], Answer[Counterexample]],
) -> PropertyVerdict:
    """An answer under limits that begin now."""
    seconds, max_nodes = limits(timeout, max_nodes, configuration.limits.property_seconds)
    started = time.monotonic()
    found: Counterexample | None = None
    try:
        answer = ask(Deadline.after(seconds, max_nodes))
        status, reason, found = _told(answer)
    except OutOfNodes:
        status, reason = PropertyStatus.TIMEOUT, f"{max_nodes} nodes were bounded"
    except OutOfTime:
        status, reason = PropertyStatus.TIMEOUT, f"{seconds:g} seconds have passed"
    except InconsistentBoundsError as error:
        logger.error("%s: nothing is concluded from it", error)
        status, reason = PropertyStatus.UNKNOWN, Reason.INCONSISTENT
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        status, reason = PropertyStatus.UNKNOWN, Reason.MEMORY
    took = time.monotonic() - started
    if found is None:
        return PropertyVerdict(status, None, reason, took)
    return PropertyVerdict(status, (found.x, found.y), reason, took, found.decimals, found.note)


def _answer(
    graph: Graph,
    question: Property,
    deadline: Deadline,
    seed: int,
    configuration: Configuration,
) -> Answer[Counterexample]:
    """What the stages say of all boxes of a property."""
    network = constrained(graph, question)
    answer = _answer_for_rows(network, question, deadline, seed, configuration)
    if answer.found is None or not question.related:
        return answer
    return replace(answer, found=replace(answer.found, y=own_outputs(graph, answer.found.y)))


def _answer_for_rows(
    graph: Graph,
    question: Property,
    deadline: Deadline,
    seed: int,
    configuration: Configuration,
) -> Answer[Counterexample]:
    """The same for a network whose outputs are the columns of the property's rows."""
    found = unconditional(graph, question, deadline)
    if found is not None:
        return Answer(Outcome.REFUTED, Stage.CORNER, 0.0, found)
    effort = Effort(
        seed, configuration.properties.attack_steps, configuration.properties.attack_starts
    )
    questions = []
    for definition in definitions(graph, question, configuration.exact):
        deadline.check()
        memory = Memory.empty(configuration.reuse)
        means = Means(CPU, effort, memory, configuration, inputs_first=True)
        questions.append(Question(means, definition.problem(), definition, deadline))
    return decide_all(questions)


def _told(answer: Answer[Counterexample]) -> tuple[PropertyStatus, str, Counterexample | None]:
    """An answer in the words of properties."""
    if answer.outcome == Outcome.PROVED:
        return PropertyStatus.HOLDS, answer.stage, None
    if answer.found is not None:
        return PropertyStatus.VIOLATED, answer.stage, answer.found
    return PropertyStatus.UNKNOWN, answer.reason, None
