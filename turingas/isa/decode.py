"""Word -> text, in a few dictionary look-ups an instruction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from turingas.isa import control
from turingas.isa.fields import Unprintable
from turingas.isa.form import WORD, Form
from turingas.isa.forms import Forms

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
                return (form.plain if plain else form.exact)(word, address, labels)
            except (Unprintable, ValueError):
                pass
        return f".word {word:#034x}"

    def lines(
        self, words: Iterable[int], address: int = 0, control_code: bool = True, labels: Mapping[int, str] | None = None
    ) -> list[str]:
        """One line a word: control code and exact text, or (``control_code`` False) nvdisasm's text alone."""
        words = list(words)
        lines: list[str] = []
        seen, codes = self.exact_seen if control_code else self.plain_seen, _codes
        for start in range(0, len(words), TOGETHER):
            some = words[start : start + TOGETHER]
            keys = [word & NOT_CODE for word in some]
            texts = [seen.get(key) for key in keys]
            if None in texts:
                self.learn(some, not control_code)
                texts = [seen.get(key) for key in keys]
            try:
                if control_code:
                    lines += [codes[word >> CODE] + text if text else "" for word, text in zip(some, texts)]
                else:
                    lines += [text or "" for text in texts]
            except ValueError:  # something that is no code
                lines += [""] * len(some)
        if "" in lines:
            for at in [at for at, line in enumerate(lines) if not line]:
                lines[at] = self._line(words[at], address + 16 * at, control_code, labels)
        return lines

    def learn(self, words: Iterable[int], plain: bool = False) -> None:
        """Remember the texts of ``words``. Real code repeats its instructions, and many of one form are written faster
        together than one by one."""
        seen = self.plain_seen if plain else self.exact_seen
        if len(seen) > SEEN:
            seen.clear()
        groups: dict[int, list[int]] = defaultdict(list)
        for word in {word & NOT_CODE for word in words}.difference(seen):
            groups[word & 0xFFF].append(word)
        for group in groups.values():
            for form, fitting in self.forms.divided(group):
                if form is None or form.has_target:
                    seen.update(dict.fromkeys(fitting, ""))
                    continue
                write, apart = (form.plain, control.REUSE_MASK) if plain else (form.exact, form.loose)
                try:
                    seen.update([(word, "" if word & apart else write(word, 0, None)) for word in fitting])
                except (Unprintable, ValueError):
                    seen.update([(word, self._anywhere(word, plain)) for word in fitting])

    def _anywhere(self, word: int, plain: bool) -> str:
        """The text of a word without control code; "" where it depends on more: of branches on their address, and of
        reuse flags that no operand shows, or in nvdisasm's text all of them, on the control code."""
        for form in self.fitting(word):
            if form.has_target or word & (control.REUSE_MASK if plain else form.loose):
                return ""
            try:
                return (form.plain if plain else form.exact)(word, 0, None)
            except (Unprintable, ValueError):
                pass
        return ""

    def _line(self, word: int, address: int, control_code: bool, labels: Mapping[int, str] | None) -> str:
        """One line as ``lines`` gives it, of any word."""
        if not control_code:
            return self.decode(word, address, labels, plain=True)
        try:
            code = _codes[word >> CODE]
        except ValueError:  # something that is no code
            return f".word {word:#034x}"
        for form in self.fitting(word):
            try:
                loose = word & form.loose
                text = form.exact(word, address, labels)
                return f"{control.show(word, loose)}  {text}" if loose else code + text
            except (Unprintable, ValueError):
                pass
        return f".word {word:#034x}"

    def explain(self, word: int) -> Form | None:
        """The form that writes this word exactly, or None."""
        for mask, value, form in self._buckets.get(word & 0xFFF) or self.forms.bucket(word & 0xFFF):
            if word & mask == value:
                if form is None:
                    list(self.fitting(word))  # makes it
                    return self.explain(word)
                try:
                    form.exact(word, 0, None)
                    return form
                except (Unprintable, ValueError):
                    pass
        return None
