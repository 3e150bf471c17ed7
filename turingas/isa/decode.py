"""Word -> text, in a few dictionary look-ups an instruction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from turingas.isa import control
from turingas.isa.fields import Unprintable
from turingas.isa.form import WORD, Form
from turingas.isa.forms import Forms

SEEN = 50_000  # whole instructions that are remembered
MASK, REUSE = control.MASK, control.REUSE_MASK
NOT_CODE = WORD & ~MASK | control.REUSE_MASK  # the reuse flags are written with the operands


class _Codes(dict[int, str]):
    """Control bits -> their text and two spaces. ValueError for combinations that do not exist."""

    def __missing__(self, bits: int) -> str:
        if control.illegal(bits):
            raise ValueError("illegal control code")
        text = self[bits] = control.show(bits) + "  "
        return text


_codes = _Codes()


class Decoder:
    """Word to text, for the forms of one architecture."""

    def __init__(self, forms: Forms) -> None:
        self.bucket, self._buckets = forms.bucket, forms.buckets
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
        for mask, value, form in self._buckets.get(word & 0xFFF) or self.bucket(word & 0xFFF):
            if word & mask == value:
                try:
                    return (form.plain if plain else form.exact)(word, address, labels)
                except (Unprintable, ValueError):
                    pass
        return f".word {word:#034x}"

    def lines(
        self, words: Iterable[int], address: int = 0, control_code: bool = True, labels: Mapping[int, str] | None = None
    ) -> list[str]:
        """One line a word: control code and exact text, or (``control_code`` False) nvdisasm's text alone."""
        out: list[str] = []
        # Real code repeats its instructions: most texts are found here. Branches, which depend on their address, are
        # not kept, nor what has reuse flags that the control code or the yield has a say in.
        seen = self.exact_seen if control_code else self.plain_seen
        buckets, codes, opaque = self._buckets, _codes, ".word {:#034x}".format
        for word in words:
            key = word & NOT_CODE
            text = seen.get(key)
            try:
                if text is not None:
                    out.append(codes[word & MASK] + text if control_code else text)
                    address += 16
                    continue
            except ValueError:
                pass
            for mask, value, form in buckets.get(word & 0xFFF) or self.bucket(word & 0xFFF):
                if word & mask == value:
                    try:
                        if not control_code:
                            text = body = form.plain(word, address, labels)
                            keep = not word & REUSE
                        elif word & form.loose:
                            codes[word & MASK]  # refuses combinations that do not exist
                            text = f"{control.show(word, word & form.loose)}  {form.exact(word, address, labels)}"
                            keep = False
                        else:
                            body = form.exact(word, address, labels)
                            text = codes[word & MASK] + body
                            keep = True
                        if keep and not form.has_target:
                            if len(seen) > SEEN:
                                seen.clear()
                            seen[key] = body
                        break
                    except (Unprintable, ValueError):
                        text = None
            out.append(text or opaque(word))
            address += 16
        return out

    def explain(self, word: int) -> Form | None:
        """The form that writes this word exactly, or None."""
        for mask, value, form in self._buckets.get(word & 0xFFF) or self.bucket(word & 0xFFF):
            if word & mask == value:
                try:
                    form.exact(word, 0, None)
                    return form
                except (Unprintable, ValueError):
                    pass
        return None
