"""Holds the instructions of libraries against nvdisasm, in both directions: ``python -m tests.tools.library_words PATH
...``. A path is a cubin, a shared library or a wheel of one, or a folder of these.

Of each architecture distinct words are drawn (``--words``; at most ``--each`` of a cubin, in an order drawn by names,
so that two runs draw the same). Each must read as nvdisasm prints it, but for the exceptions that docs/exceptions.md
states, and its own text must assemble to it. Then one bit of each is flipped (``--flips`` of them): what comes out must
be text that assembles to just that word (.word at worst), and where it is more than .word, nvdisasm's text, if
nvdisasm reads the word at all.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import turingas
from tests.isa.test_nvdisasm import expected, squeeze
from tests.isa.words import PLAIN
from tests.tools import nvdisasm
from tests.tools.corpus import share, sources
from turingas.cubin.cubin import Cubin
from turingas.errors import AsmError, CubinError
from turingas.isa import control

EXAMPLES = 5
CODES = "refused with its control code, else "
BATCH = 20_000  # words that nvdisasm is asked at once


def draw(paths: Iterable[Path], arch: str, count: int, each: int, seed: str = "") -> tuple[list[int], int]:
    """``count`` distinct words of code for ``arch``, and from how many cubins they are; another ``seed`` takes others,
    and other words of them."""
    found: dict[int, None] = {}
    cubins = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted(sources(paths, Path(folder)), key=lambda source: share(seed + source.name)):
            if len(found) >= count:
                break
            if not source.may_be([arch]):
                continue
            try:
                cubin = Cubin.from_bytes(source.read())
            except (AsmError, CubinError):
                continue
            if cubin.arch.rstrip("af") != arch:
                continue
            cubins += 1
            new = list({word: None for kernel in cubin.texts for word in kernel.words if word not in found})
            found.update(dict.fromkeys(random.Random(seed + source.name).sample(new, min(each, len(new)))))
    return list(found)[:count], cubins


def back(words: Sequence[int], texts: Sequence[str], arch: str) -> list[str]:
    """The texts that do not assemble to their words, with what they make."""
    try:
        if turingas.encode("\n".join(texts), arch) == list(words):
            return []
    except AsmError:
        pass
    wrong = []
    for n, (word, text) in enumerate(zip(words, texts)):
        try:
            (made,) = turingas.encode(text, arch, address=16 * n)
        except AsmError as error:
            wrong.append(f"{word:032x} {text}: {error}")
        else:
            if made != word:
                wrong.append(f"{word:032x} {text}: {made:032x}")
    return wrong


def look(words: Sequence[int], arch: str) -> dict[str, list[str]]:
    """What is wrong with words, by kinds; "unread" are those that we do not read, and nvdisasm does; "stated" those
    whose difference the documents state; "opaque" those that we do not read at all."""
    found: dict[str, list[str]] = {"otherwise": [], "unread": [], "stated": [], "opaque": [], "back": []}
    for start in range(0, len(words), BATCH):
        part = words[start : start + BATCH]
        ours, theirs = turingas.decode(part, arch, control=False), nvdisasm.legal_texts(part, arch)
        whole = turingas.decode(part, arch)
        refused = [n for n, text in enumerate(theirs) if not text and ".word" not in whole[n]]
        plain = nvdisasm.legal_texts([word & ~control.MASK | PLAIN for word in part], arch) if refused else []
        for n in refused:  # scoreboards that such an instruction cannot set
            theirs[n] = CODES + plain[n]
        for word, mine, text, line in zip(part, ours, theirs, whole):
            if ".word" in line:
                found["opaque"].append(f"{word:032x}")
                if text:
                    found["unread"].append(f"{word:032x} {text}")
            elif squeeze(mine) != squeeze(text):
                stated = expected(mine, text, arch) or squeeze(CODES + mine) == squeeze(text)
                kind = "stated" if stated else "otherwise"
                found[kind].append(f"{word:032x} {mine} | {text}")
        found["back"] += back(part, whole, arch)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--arch", action="append", required=True)
    parser.add_argument("--of", help="read words of this architecture: libraries have none of sm_121's own")
    parser.add_argument("--words", type=int, default=100_000, help="distinct words of each architecture")
    parser.add_argument("--each", type=int, default=2000, help="words of one cubin, at most")
    parser.add_argument("--flips", type=int, default=20_000, help="words of which a bit is flipped")
    parser.add_argument("--seed", default="", help="any text: draws other cubins and words")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    figures: dict[str, dict[str, int]] = {}
    failed = False
    for arch in options.arch:
        words, cubins = draw(options.paths, options.of or arch, options.words, options.each, options.seed)
        rng = random.Random(options.seed + arch)
        flipped = [word ^ 1 << rng.randrange(128) for word in rng.sample(words, min(options.flips, len(words)))]
        row = figures[arch] = {"cubins": cubins, "words": len(words), "flipped": len(flipped)}
        for name, some in (("", words), ("flipped ", flipped)):
            for kind, examples in look(some, arch).items():
                row[name + kind] = len(examples)
                bad = kind in ("otherwise", "back") or kind == "unread" and not name
                failed |= bad and bool(examples)
                for example in examples[: EXAMPLES * (bad or kind == "unread")]:
                    print(f"  {arch}: {name}{kind}: {example}", flush=True)
        print(arch, json.dumps(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
