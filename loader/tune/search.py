"""The search of `turingas tune`: a small population, of which each round makes children; the best of all go on.

(mu + lambda) evolution: ``PARENTS`` candidates, the original the first of them; a round makes ``CHILDREN``, each by one
to three moves from a parent that is drawn by chance (the first ones are what the scheduler makes of the original); the
``PARENTS`` fastest of both are the next parents.

On a GPU nobody waits for a round: who is free makes the next child of the parents that there are. No two times are the
same there, so a parent is timed ``TIMES`` times before others are made, and now and then again; the median counts.

All chance comes from the seed, the round and the number of the child, so with the model, whose times do not vary, the
same search finds the same, however many workers it has and however often it was interrupted.
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np

from loader.tune.judge import (
    FINAL_RUNS,
    RUNS,
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
from loader.tune.judge import INPUTS as INITIAL
from loader.workers import Lost, Workers
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

PARENTS, CHILDREN = 4, 16
TIMES = 3  # that a parent is timed on a GPU before it is believed
AFRESH = 12  # each so-manyth task there times a parent once more
ENDLESS = 1 << 40  # tasks
FAME = 8  # of those that were the best of a round
INPUTS = 32  # random inputs on which the winner leaves the original's bits
GAIN = 0.996  # of the original's time on a GPU: what is no faster than that is taken for chance
WORD = 16  # bytes
MOST_NAMED = 60  # letters of a kernel's name in that of a file: mangled ones may be too long for it

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


class _Tasks(Sequence[Child]):
    """Tasks that are made when they are begun, and forgotten when they are done, until all is ``over``."""

    def __init__(self, make: Callable[[int], Child]) -> None:
        self.make, self.begun, self.over = make, dict[int, Child](), False

    def __len__(self) -> int:
        return 0 if self.over else ENDLESS

    @overload
    def __getitem__(self, number: int) -> Child: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Child]: ...
    def __getitem__(self, number: int | slice) -> Child | Sequence[Child]:
        assert isinstance(number, int)
        if number not in self.begun:
            self.begun[number] = self.make(number)
        return self.begun[number]

    def done(self, number: int) -> Child:
        """One that is not asked for any more."""
        return self.begun.pop(number)


class Search:
    """A search for a faster kernel in ``order``. ``path``: the file that it is kept in after each round, with which it
    can be gone on with (``resume``)."""

    def __init__(self, order: Order, seed: int = 0, path: Path | None = None) -> None:
        self.order, self.seed, self.path = order, seed, path
        self.original: Words = tuple(Cubin.from_bytes(order.cubin).kernel(order.kernel).words)
        self.population = [Member(self.original)]
        self.round, self.tried = 0, 0
        #: on a GPU: children that were begun, how often members are being timed again, and moves by what they made
        self.begun, self.asked = 0, Counter[Words]()
        self.moves: dict[Words, tuple[str, ...]] = {self.original: ()}
        self.fame: list[Member] = []  # who was the best of a round, the last ones
        self.starts: dict[str, str] = {}  # on a GPU: what became of those that have begun
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
        begin = time.monotonic()
        end = begin + seconds
        try:
            while (rounds is None or self.round < rounds) and time.monotonic() < end:
                for _ in self._stream(workers, rounds, tell, end) if self.on_gpu else self._round(workers, tell, end):
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

    @property
    def on_gpu(self) -> bool:
        """Whether times are a GPU's, and not the model's."""
        return self.order.device != "cpu"

    def _round(self, workers: Workers, tell: Tell, end: float) -> Iterator[None]:
        tasks = [self._child(number) for number in range(CHILDREN)]
        todo = [number for number in range(len(tasks)) if number not in self.done]
        late = lambda number: time.monotonic() >= end  # noqa: E731
        for place, outcome in workers.run(evaluate, [tasks[number] for number in todo], late):
            number = todo[place]
            self.done[number] = self._known(tasks[number], outcome, f"round {self.round}, child {number}", tell)
        if len(self.done) == len(tasks):  # else the round stays open: who goes on with it does the rest
            self._select()
        yield

    def _known(self, task: Child, outcome: Outcome | Lost, what: str, tell: Tell) -> Outcome:
        if isinstance(outcome, Lost):
            tell(f"{what}: {outcome.why}")
            return Outcome(task.words, (), math.inf, "lost")
        return outcome

    def _child(self, number: int) -> Child:
        random = np.random.default_rng((self.seed, self.round, number))
        parent = self.population[random.integers(len(self.population))]
        bar = self.population[-1].figure if len(self.population) == PARENTS else 1.0
        which = self.round * CHILDREN + number
        start = list(STARTS)[which] if which < len(STARTS) else ""
        return Child(self.order, parent.words, (self.seed, self.round, number), bar, start=start)

    def _select(self) -> None:
        """The parents of the next round."""
        self.tried += len(self.done)
        self.refused.update(outcome.why.partition(":")[0] for outcome in self.done.values() if outcome.why)
        self.population = self._ranked()[:PARENTS]
        self.done = {}
        self._over()

    def _over(self) -> None:
        """A round is over."""
        self.fame = [one for one in self.fame if one.words != self.best.words][1 - FAME :] + [self.best]
        self.round += 1
        self.history.append(round(self.best.figure, 5))
        self.write()

    # -- on a GPU

    def _stream(self, workers: Workers, rounds: int | None, tell: Tell, end: float) -> Iterator[None]:
        """Children of the parents that there are when somebody is free; a round is over when there are so many."""
        most = ENDLESS if rounds is None else rounds * CHILDREN
        self.begun = self.tried
        self.asked.clear()
        tasks = _Tasks(lambda number: self._next(number, most))

        def late(number: int) -> bool:
            tasks.over = time.monotonic() >= end or self.tried >= most
            return tasks.over

        for number, outcome in workers.run(evaluate, tasks, late):
            task = tasks.done(number)
            self._take(task, self._known(task, outcome, f"task {number}", tell))
            yield

    def _next(self, number: int, most: int) -> Child:
        """What is to be done next, of so many children at ``most``."""
        random = np.random.default_rng((self.seed, self.round, number))
        seed = self.seed, self.round, number
        rare = [one for one in self.population
                if one.words != self.original and len(one.times) + self.asked[one.words] < TIMES]  # fmt: skip
        if rare or number % AFRESH == AFRESH - 1 or self.begun >= most:
            one = rare[0] if rare else self.population[random.integers(len(self.population))]
            self.asked[one.words] += 1
            return Child(self.order, one.words, seed, math.inf, True)
        self.begun += 1
        parent = self.population[random.integers(len(self.population))]
        bar = self.population[-1].figure if len(self.population) == PARENTS else 1.0
        start = next((one for one in STARTS if one not in self.starts), "")
        if start:
            self.starts[start] = ""
        return Child(self.order, parent.words, seed, bar, start=start)

    def _take(self, task: Child, outcome: Outcome) -> None:
        """What became of a task."""
        known = {one.words: one for one in self.population}
        if task.again:
            self.asked[task.words] -= 1
            if task.words in known and not outcome.why and task.words != self.original:
                known[task.words].times.append(outcome.figure)
        else:
            self.tried += 1
            if task.start:
                self.starts[task.start] = outcome.why or f"{outcome.figure:.4f}"
            self.clean |= outcome.moves == (STRICT,)
            if outcome.why:
                self.refused[outcome.why.partition(":")[0]] += 1
            elif outcome.words not in known and outcome.figure < 1.0:
                moves = self.moves[task.words] + outcome.moves if not task.start else outcome.moves
                self.moves[outcome.words] = moves
                self.population.append(Member(outcome.words, moves, [outcome.figure]))
        self.population = sorted(self.population, key=lambda one: one.figure)[:PARENTS]
        if not task.again and self.tried % CHILDREN == 0:
            self._over()

    # -- what comes of it

    def _ranked(self) -> list[Member]:
        """Parents and children, the fastest first; what is as fast comes in the order in which it was found."""
        members = [dataclasses.replace(one, times=list(one.times)) for one in self.population]
        known = {one.words: one for one in members}
        for number, outcome in sorted(self.done.items()):
            if outcome.why:
                continue
            if outcome.words not in known and outcome.figure < 1.0:
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
        limit = GAIN if self.on_gpu else 1.0
        if self.on_gpu:
            again = [one.words for one in self.population for _ in range(TIMES) if one.words != self.original]
            tasks = [Child(self.order, words, (self.seed, n), math.inf, True) for n, words in enumerate(again)]
            for number, outcome in workers.run(evaluate, tasks):
                self._take(tasks[number], self._known(tasks[number], outcome, "a parent", tell))
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
        """On a GPU the inputs are divided among the workers, which all time it: it counts what half of them find, for
        where a process has its arrays matters by some percent."""
        every = range(INITIAL, INITIAL + inputs)
        parts = max(1, min(workers.count, inputs)) if self.on_gpu else 1
        runs = max(RUNS, FINAL_RUNS // parts)
        tasks = [(self.order, member.words, every[number::parts], runs) for number in range(parts)]
        proofs = [proof for _, proof in sorted(workers.run(prove, tasks))]
        for proof in proofs:
            if isinstance(proof, Lost) or proof.why:
                return Proof(math.inf, 0, 0, proof.why)
        made = [proof for proof in proofs if isinstance(proof, Proof)]
        figure = statistics.median(one.figure for one in made)
        return Proof(figure, sum(one.inputs for one in made), sum(one.strict for one in made))

    def _strict(self, workers: Workers, members: Sequence[Member], inputs: int) -> list[Proof]:
        """What the strict mode says of some, of each in a worker; on the CPU device nothing, for ``prove`` asks it."""
        found = [Proof(0.0, 0, 0) for _ in members]
        if self.on_gpu:
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
        code = b"".join(word.to_bytes(WORD, "little") for word in self.original)  # not what lines are named in a cubin
        digests = {name: _digest(text) for name, text in (("code", code), ("bench", order.bench.encode()))}
        return {"what": "tune", **digests, "kernel": order.kernel, "device": order.device, "seed": self.seed,
                "parents": PARENTS, "children": CHILDREN}  # fmt: skip

    def write(self) -> None:
        """Keep all of it in the file, which is never there by half."""
        if self.path is None:
            return
        state = {
            **self.facts(), "round": self.round, "tried": self.tried, "refused": dict(self.refused),
            "history": self.history, "starts": {name: what for name, what in self.starts.items() if what},
            "population": [{**dataclasses.asdict(one), "words": pack(one.words)} for one in self.population],
            "fame": [{**dataclasses.asdict(one), "words": pack(one.words)} for one in self.fame],
            "done": {n: {**one._asdict(), "figure": str(one.figure), "words": pack(one.words)}
                     for n, one in sorted(self.done.items())},
        }  # fmt: skip
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.tmp")
        draft.write_text(json.dumps(state, indent=1) + "\n")
        os.replace(draft, self.path)

    @classmethod
    def kept(cls, order: Order, seed: int, folder: str | os.PathLike[str] | None) -> Search:
        """One that is kept in a folder, in a file named by all that must be the same, gone on with if it is there."""
        made = cls(order, seed)
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            facts = json.dumps(made.facts(), sort_keys=True).encode()
            made.path = Path(folder) / f"{order.kernel[:MOST_NAMED]}-{_digest(facts)[:16]}.search"
            if made.path.is_file():
                made.resume(made.path)
        return made

    def resume(self, path: Path) -> None:
        """Go on with what a file holds. LaunchError for one of another search."""
        try:
            state = json.loads(path.read_text())
            other = [name for name, value in self.facts().items() if state[name] != value]
            if other:
                raise LaunchError(f"{path} is of another search: {', '.join(other)} differ", "leave --resume out")
            self.round, self.tried = state["round"], state["tried"]
            self.refused, self.history = Counter(state["refused"]), state["history"]
            self.population, self.fame = (
                [Member(unpack(one["words"]), tuple(one["moves"]), one["times"]) for one in state[name]]
                for name in ("population", "fame")
            )
            self.begun, self.starts = self.tried, dict(state.get("starts", {}))
            if self.on_gpu:  # perhaps another one: they are timed again
                for one in self.population:
                    one.times = [one.figure]
            self.moves |= {one.words: one.moves for one in [*self.population, *self.fame]}
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
