"""The search of `turingas tune`: a small population, of which each round makes children; the best of all go on.

(mu + lambda) evolution: ``PARENTS`` candidates, the original the first of them; a round makes ``CHILDREN`` (on GPUs
``EACH`` for each worker, if that is more), each by one to three moves from a parent that is drawn by chance (the first
ones are what the scheduler makes of the original); the ``PARENTS`` fastest of both are the next parents. On a GPU,
whose times are never the same twice, parents are timed once more each round, and the median of a parent's times counts.
All chance comes from the seed, the round and the number of the child, so the same search finds the same, however many
workers it has and however often it was interrupted (where times are the model's, which do not vary).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import os
import statistics
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from loader.tune.judge import (
    STARTS,
    STRICT,
    Child,
    Order,
    Outcome,
    Proof,
    Words,
    evaluate,
    look,
    prove,
    strictly,
    with_words,
)
from loader.workers import Lost, Workers
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

PARENTS, CHILDREN = 4, 16
EACH = 3  # children of a round for each worker, where times are a GPU's and not the same twice anyway
FAME = 8  # of those that were the best of a round
INPUTS = 32  # random inputs on which the winner leaves the original's bits
GAIN = 0.996  # of the original's time on a GPU: what is no faster than that is taken for chance
WORD = 16  # bytes

Tell = Callable[[str], None]
Json = dict[str, Any]


@dataclass
class Member:
    """A candidate that is correct as far as is known. ``times``: what was measured of it, the original's being 1."""

    words: Words
    moves: tuple[str, ...] = ()
    times: list[float] = field(default_factory=lambda: [1.0])

    @property
    def figure(self) -> float:
        """What counts."""
        return statistics.median(self.times)


@dataclass
class Found:
    """What a search came to. ``cubin`` is the winner's, or the original where nothing is faster (``gained`` False)."""

    cubin: Cubin
    gained: bool
    figure: float
    moves: tuple[str, ...]
    inputs: int
    strict: int
    rounds: int
    tried: int
    refused: dict[str, int]
    history: list[float]
    about: Json  # what ``look`` told: device, arch, instructions, the original's figure


class Search:
    """A search for a faster kernel in ``order``. ``path``: the file that it is kept in after each round, with which it
    can be gone on with (``resume``)."""

    def __init__(self, order: Order, seed: int = 0, path: Path | None = None) -> None:
        self.order, self.seed, self.path = order, seed, path
        self.original: Words = tuple(Cubin.from_bytes(order.cubin).kernel(order.kernel).words)
        self.population = [Member(self.original)]
        self.round, self.tried = 0, 0
        self.children = CHILDREN  # of a round
        self.fame: list[Member] = []  # who was the best of a round, the last ones
        self.clean = False  # whether the original has run in strict mode, where a GPU times it
        self.done: dict[int, Outcome] = {}  # of the round that is under way: child -> what became of it
        self.refused: Counter[str] = Counter()
        self.history: list[float] = []
        self.about: Json = {}

    def run(
        self, workers: Workers, rounds: int | None, seconds: float, tell: Tell,
        step: Callable[[float, float], None] = lambda part, best: None,
    ) -> None:  # fmt: skip
        """Search until so many ``rounds`` are done in all, or ``seconds`` have passed. ``step`` is told what part of
        the work is done, and the best figure. KeyboardInterrupt: what is done of a round is kept in the file."""
        for _, about in workers.run(look, [self.order]):
            if isinstance(about, Lost):
                raise LaunchError(f"the original cannot be run: {about.why}")
            self.about = about
        if self.order.device != "cpu" and self.round == 0 and not self.done:
            self.children = max(CHILDREN, EACH * workers.count)
        begin = time.monotonic()
        end = begin + seconds
        try:
            while (rounds is None or self.round < rounds) and time.monotonic() < end:
                self._round(workers, tell, lambda: time.monotonic() >= end)
                passed = (time.monotonic() - begin) / seconds
                step(min(1.0, max(passed, self.round / rounds if rounds else 0)), self.best.figure)
            self.write()
        except KeyboardInterrupt:
            self.write()
            raise

    @property
    def best(self) -> Member:
        """The fastest so far."""
        return self.population[0]

    def _round(self, workers: Workers, tell: Tell, late: Callable[[], bool]) -> None:
        again = len(self.population) if self.order.device != "cpu" else 0
        tasks = [self._child(number) for number in range(self.children)]
        tasks += [Child(self.order, one.words, (self.seed, self.round, self.children + n), math.inf, True)
                  for n, one in enumerate(self.population[:again])]  # fmt: skip
        todo = [number for number in range(len(tasks)) if number not in self.done]
        for place, outcome in workers.run(evaluate, [tasks[number] for number in todo], late):
            number = todo[place]
            if isinstance(outcome, Lost):
                tell(f"round {self.round}, child {number}: {outcome.why}")
                outcome = Outcome(tasks[number].words, (), math.inf, "lost")
            self.done[number] = outcome
            self.clean |= outcome.moves == (STRICT,)
        if len(self.done) == len(tasks):  # else the round stays open: who goes on with it does the rest
            self._select()

    def _child(self, number: int) -> Child:
        random = np.random.default_rng((self.seed, self.round, number))
        parent = self.population[random.integers(len(self.population))]
        bar = self.population[-1].figure if len(self.population) == PARENTS else 1.0
        which = self.round * self.children + number
        start = list(STARTS)[which] if which < len(STARTS) else ""
        return Child(self.order, parent.words, (self.seed, self.round, number), bar, start=start)

    def _select(self) -> None:
        """The parents of the next round."""
        self.tried += sum(number < self.children for number in self.done)
        self.refused.update(outcome.why.partition(":")[0] for outcome in self.done.values() if outcome.why)
        self.population = self._ranked()[:PARENTS]
        self.fame = [one for one in self.fame if one.words != self.best.words][1 - FAME :] + [self.best]
        self.done = {}
        self.round += 1
        self.history.append(round(self.best.figure, 5))
        self.write()

    def _ranked(self) -> list[Member]:
        """Parents and children, the fastest first; what is as fast comes in the order in which it was found."""
        members = [dataclasses.replace(one, times=list(one.times)) for one in self.population]
        known = {one.words: one for one in members}
        for number, outcome in sorted(self.done.items()):
            if outcome.why:
                continue
            if number >= self.children:
                known[outcome.words].times.append(outcome.figure)
            elif outcome.words not in known and outcome.figure < 1.0:
                parent = self._parent(number)
                member = Member(outcome.words, parent.moves + outcome.moves, [outcome.figure])
                known[outcome.words] = member
                members.append(member)
        return sorted(members, key=lambda one: one.figure)

    def _parent(self, number: int) -> Member:
        words = self._child(number).words
        return next(one for one in self.population if one.words == words)

    def proven(self, workers: Workers, inputs: int, tell: Tell) -> Found:
        """The fastest candidate that keeps what is promised: linted, strict, and the same bits on new inputs."""
        limit = 1.0 if self.order.device == "cpu" else GAIN
        first = self._ranked()[:PARENTS]
        known = {one.words for one in first}
        others = sorted((one for one in self.fame if one.words not in known), key=lambda one: one.figure)
        members = [one for one in [*first, *others] if one.words != self.original and one.figure < limit]
        some = max(1, min(PARENTS, workers.count))
        for start in range(0, len(members), some):
            part = members[start : start + some]
            strict = self._strict(workers, part, inputs)
            for member, clean in zip(part, strict):
                proof = clean if clean.why else self._proof(workers, member, inputs)
                if proof.figure < limit:
                    return self._found(member, proof._replace(strict=clean.strict or proof.strict, blind=clean.blind))
                why = proof.why or f"it took {proof.figure:.4f} of the time when it was measured again"
                tell(f"a candidate is not taken: {why}")
        return self._found(Member(self.original), None)

    def _proof(self, workers: Workers, member: Member, inputs: int) -> Proof:
        [(_, proof)] = workers.run(prove, [(self.order, member.words, inputs)])
        return Proof(math.inf, 0, 0, proof.why) if isinstance(proof, Lost) else proof

    def _strict(self, workers: Workers, members: Sequence[Member], inputs: int) -> list[Proof]:
        """What the strict mode says of some, of each in a worker; on the CPU device nothing, for ``prove`` asks it."""
        found = [Proof(0.0, 0, 0) for _ in members]
        if self.order.device != "cpu":
            tasks = [(self.order, one.words, inputs, self.clean) for one in members]
            for number, proof in workers.run(strictly, tasks):
                found[number] = Proof(math.inf, 0, 0, proof.why) if isinstance(proof, Lost) else proof
        return found

    def _found(self, member: Member, proof: Proof | None) -> Found:
        cubin = with_words(self.order.cubin, self.order.kernel, member.words)
        figure, inputs, strict = (proof.figure, proof.inputs, proof.strict) if proof else (1.0, 0, 0)
        return Found(
            cubin, proof is not None, figure, member.moves, inputs, strict, self.round, self.tried,
            dict(self.refused.most_common()), self.history, {**self.about, "blind": proof.blind if proof else ""},
        )  # fmt: skip

    # -- the file

    def facts(self) -> Json:
        """What must be the same to go on with a search."""
        order = self.order
        digests = {name: _digest(text) for name, text in (("cubin", order.cubin), ("bench", order.bench.encode()))}
        return {"what": "tune", **digests, "kernel": order.kernel, "device": order.device, "seed": self.seed,
                "parents": PARENTS, "children": CHILDREN}  # fmt: skip

    def write(self) -> None:
        """Keep all of it in the file, which is never there by half."""
        if self.path is None:
            return
        state = {
            **self.facts(), "round": self.round, "tried": self.tried, "refused": dict(self.refused),
            "history": self.history, "children in a round": self.children,
            "population": [{**dataclasses.asdict(one), "words": pack(one.words)} for one in self.population],
            "fame": [{**dataclasses.asdict(one), "words": pack(one.words)} for one in self.fame],
            "done": {n: {**one._asdict(), "figure": str(one.figure), "words": pack(one.words)}
                     for n, one in sorted(self.done.items())},
        }  # fmt: skip
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        draft.write_text(json.dumps(state, indent=1) + "\n")
        os.replace(draft, self.path)

    def resume(self, path: Path) -> None:
        """Go on with what a file holds. LaunchError for one of another search."""
        try:
            state = json.loads(path.read_text())
            other = [name for name, value in self.facts().items() if state[name] != value]
            if other:
                raise LaunchError(f"{path} is of another search: {', '.join(other)} differ", "leave --resume out")
            self.round, self.tried = state["round"], state["tried"]
            self.refused, self.history = Counter(state["refused"]), state["history"]
            self.children = state["children in a round"]
            self.population, self.fame = (
                [Member(unpack(one["words"]), tuple(one["moves"]), one["times"]) for one in state[name]]
                for name in ("population", "fame")
            )
            self.done = {int(n): Outcome(unpack(one["words"]), tuple(one["moves"]), float(one["figure"]), one["why"])
                         for n, one in state["done"].items()}  # fmt: skip
        except (OSError, ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
            if isinstance(error, LaunchError):
                raise
            hint = "`turingas tune` writes one beside what it makes"
            raise LaunchError(f"{path} holds no search: {error}", hint) from None


def pack(words: Words) -> str:
    """As text for a JSON file."""
    data = b"".join(word.to_bytes(WORD, "little") for word in words)
    return base64.b64encode(zlib.compress(data, 9)).decode()


def unpack(text: str) -> Words:
    """What ``pack`` packed."""
    data = zlib.decompress(base64.b64decode(text))
    return tuple(int.from_bytes(data[n : n + WORD], "little") for n in range(0, len(data), WORD))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
