"""Word -> text, in a few dictionary look-ups an instruction."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add, or_

from turingas.isa import control
from turingas.isa.fields import Target, Unprintable
from turingas.isa.form import WORD, Form
from turingas.isa.forms import Forms
from turingas.isa.operands import TARGET, remember

SEEN = 50_000  # whole instructions that are remembered
TOGETHER = 8192  # words that are decoded together
CODE = control.STALL  # where the control code begins
NOT_CODE = WORD & ~control.MASK | control.REUSE_MASK  # the reuse flags are written with the operands


class _Codes(dict[int, str]):
    """The bits from the control code on -> its text and two spaces. ValueError for combinations that do not exist."""

    def __missing__(self, bits: int) -> str:
        if control.illegal(bits << CODE):
            raise ValueError("illegal control code")
        if len(self) > SEEN:
            self.clear()
        text = self[bits] = control.show(bits << CODE) + "  "
        return text


_codes = _Codes()


class Decoder:
    """Word to text, for the forms of one architecture."""

    def __init__(self, forms: Forms) -> None:
        self.forms, self.fitting, self._buckets = forms, forms.fitting, forms.buckets
        #: words without control code -> their texts; "" where the text depends on more than these bits
        self.exact_seen: dict[int, str] = {}
        self.plain_seen: dict[int, str] = {}
        #: opcode -> the bits that the text of a relative branch before its target depends on
        self._before: dict[int, int] = {}
        self._branches: dict[int, tuple[str, Target] | None] = {}  # these bits -> ``branch``

    def decode(
        self,
        word: int,
        address: int = 0,
        labels: Mapping[int, str] | None = None,
        plain: bool = False,
    ) -> str:
        """The text of one word without its control code; ``.word 0x...`` where no row explains it.

        ``plain``: nvdisasm's own text, which at places says less than the word.
        """
        for form in self.fitting(word):
            try:
                return (form.plain if plain else form.exact)((word,), address, labels)[0]
            except (Unprintable, ValueError):
                pass
        return f".word {word:#034x}"

    def lines(
        self, words: Iterable[int], address: int = 0, control_code: bool = True, labels: Mapping[int, str] | None = None
    ) -> list[str]:
        """One line a word: control code and exact text, or (``control_code`` False) nvdisasm's text alone."""
        words = list(words)
        lines: list[str] = []
        for start in range(0, len(words), TOGETHER):
            seen = self._seen(not control_code)
            some = words[start : start + TOGETHER]
            keys = [word & NOT_CODE for word in some]
            try:
                texts = list(map(seen.__getitem__, keys))
            except KeyError:
                self._write(seen, keys, not control_code)
                texts = list(map(seen.__getitem__, keys))
            done = texts
            if control_code:
                try:
                    done = list(map(add, [_codes[word >> CODE] for word in some], texts))
                except ValueError:  # something that is no code
                    done = texts = [""] * len(some)
            if "" in texts:
                for n in [n for n, text in enumerate(texts) if not text]:
                    done[n] = self.line(some[n], address + 16 * (start + n), control_code, labels)
            lines += done
        return lines

    def anywhere(self, words: Sequence[int]) -> list[str]:
        """What ``lines`` gives for words that mean the same at every address; "" for others."""
        keys = [word & NOT_CODE for word in words]
        seen = self._seen(False)
        self._write(seen, keys, False)
        lines: list[str] = []
        for word, text in zip(words, map(seen.__getitem__, keys)):
            try:
                lines.append(_codes[word >> CODE] + text if text else "")
            except ValueError:  # something that is no code
                lines.append("")
        return lines

    def _seen(self, plain: bool) -> dict[int, str]:
        """The memory of texts. One that is full is not emptied but replaced: another thread may be reading it."""
        if len(self.plain_seen) > SEEN:
            self.plain_seen = {}
        if len(self.exact_seen) > SEEN:
            self.exact_seen = {}
        return self.plain_seen if plain else self.exact_seen

    def _write(self, seen: dict[int, str], words: Iterable[int], plain: bool) -> None:
        """Remember the texts of words without control code. Real code repeats its instructions, and those of one form
        are written together."""
        groups: dict[int, list[int]] = defaultdict(list)
        for word in set(words).difference(seen):
            groups[word & 0xFFF].append(word)
        for group in groups.values():
            for form, fitting in self.forms.divided(group):
                if form is None or form.has_target:
                    seen.update(dict.fromkeys(fitting, ""))
                    continue
                apart = control.REUSE_MASK if plain else form.loose
                if reduce(or_, fitting) & apart:
                    seen.update(dict.fromkeys([word for word in fitting if word & apart], ""))
                    fitting = [word for word in fitting if not word & apart]
                try:
                    seen.update(zip(fitting, (form.plain if plain else form.exact)(fitting, 0, None)))
                except (Unprintable, ValueError):
                    seen.update([(word, self._anywhere(word, plain)) for word in fitting])

    def _anywhere(self, word: int, plain: bool) -> str:
        """The text of a word without control code; "" where it depends on more: of branches on their address, and of
        reuse flags that no operand shows, or in nvdisasm's text all of them, on the control code."""
        for form in self.fitting(word):
            if form.has_target or word & (control.REUSE_MASK if plain else form.loose):
                return ""
            try:
                return (form.plain if plain else form.exact)((word,), 0, None)[0]
            except (Unprintable, ValueError):
                pass
        return ""

    def line(self, word: int, address: int, control_code: bool, labels: Mapping[int, str] | None) -> str:
        """One line as ``lines`` gives it, of any word."""
        if not control_code:
            return self.decode(word, address, labels, plain=True)
        try:
            code = _codes[word >> CODE]
        except ValueError:  # something that is no code
            return f".word {word:#034x}"
        branch = self.branch(word)
        if branch is not None:
            where = branch[1].address(word, address)
            name = labels.get(where) if labels else None
            return f"{code}{branch[0]}{where:#x}" if name is None else code + branch[0] + name
        for form in self.fitting(word):
            try:
                loose = word & form.loose
                text = form.exact((word,), address, labels)[0]
                return f"{control.show(word, loose)}  {text}" if loose else code + text
            except (Unprintable, ValueError):
                pass
        return f".word {word:#034x}"

    def branch(self, word: int) -> tuple[str, Target] | None:
        """The text of a relative branch, without its control code, up to its target, which is last; and the target's
        field. None of other words, and where the text depends on more than the target."""
        try:
            return self._branches[word & self._before[word & 0xFFF]]
        except KeyError:
            return self._new_branch(word)

    def _new_branch(self, word: int) -> tuple[str, Target] | None:
        form = next(self.fitting(word), None)
        target = form.operands[-1].only if form is not None and form.has_target else None
        before = NOT_CODE & ~target.mask if isinstance(target, Target) else NOT_CODE
        if self._before.setdefault(word & 0xFFF, before) != before:
            return None  # other branches of this opcode have their targets elsewhere
        found = None
        if form is not None and isinstance(target, Target) and target.relative:
            earlier = itertools.takewhile(lambda one: one[2] is not form, self.forms.buckets[word & 0xFFF])
            apart = all((word ^ value) & mask & before for mask, value, _ in earlier)
            if apart and not (form.check_mask or form.tests or form.size or word & form.loose):
                with contextlib.suppress(Unprintable, ValueError):
                    text = form.exact((word,), 0, {target.address(word, 0): TARGET})[0]
                    if text.endswith(TARGET):
                        found = text.removesuffix(TARGET), target
        return remember(self._branches, word & before, found)

    def explain(self, word: int) -> Form | None:
        """The form that writes this word exactly, or None."""
        for mask, value, form in self._buckets.get(word & 0xFFF) or self.forms.bucket(word & 0xFFF):
            if word & mask == value:
                if form is None:
                    list(self.fitting(word))  # makes it
                    return self.explain(word)
                try:
                    form.exact((word,), 0, None)
                    return form
                except (Unprintable, ValueError):
                    pass
        return None
