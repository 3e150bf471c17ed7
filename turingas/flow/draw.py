"""Control-flow graphs as pictures: in Graphviz's language, and as SVG that needs no other program."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from turingas.flow.graph import Graph
from turingas.isa.arch import WORD_BYTES

MOST = 24  # instructions of a block that are written out; of longer ones the first and the last
FONT, LINE, WIDE, PAD = 12, 15, 7.25, 8  # pixels: size, distance of lines, width of a character, room around text
STEP = 14  # pixels between two arrows side by side


def block_text(graph: Graph, number: int) -> list[str]:
    """The lines of a block: its address and instructions."""
    block = graph.blocks[number]
    lines = [f"{WORD_BYTES * n:04x}  {graph.text(n)}" for n in range(block.start, block.end)]
    if len(lines) > MOST:
        lines[MOST // 2 : -MOST // 2] = [f"... {len(lines) - MOST} more"]
    return lines


def edges(graph: Graph) -> Iterator[tuple[int, int, str]]:
    """From block, to block, and what leads there: "taken", "next", "indirect", or "call"."""
    for number, block in enumerate(graph.blocks):
        for to in block.next:
            how = "taken" if to == block.taken else "next" if to == number + 1 else "indirect"
            yield number, to, how
        if block.calls is not None:
            yield number, block.calls, "call"


STYLES = {"taken": "", "next": "style=bold", "indirect": "style=dotted", "call": "style=dashed"}


def dot(graph: Graph) -> str:
    """In Graphviz's language; loops are clusters."""
    name = graph.kernel.name.replace("\\", "\\\\").replace('"', '\\"')
    lines = [f'digraph "{name}" {{', '  node [shape=box, fontname="monospace", fontsize=10];', f'  label="{name}";']

    def node(number: int) -> str:
        text = "".join(_quoted(line) + "\\l" for line in block_text(graph, number))
        return f'  b{number} [label="{text}"];'

    def within(parent: int | None, indent: str) -> Iterator[str]:
        here = set(graph.loops[parent].blocks) if parent is not None else set(range(len(graph.blocks)))
        for n, loop in enumerate(graph.loops):
            if loop.parent == parent:
                yield f'{indent}subgraph cluster_{n} {{ label="loop, depth {loop.depth}"; color=gray;'
                yield from within(n, indent + "  ")
                yield indent + "}"
                here -= loop.blocks
        yield from (indent + node(number) for number in sorted(here))

    lines += within(None, "")
    lines += [f"  b{one} -> b{to} [{STYLES[how]}];" for one, to, how in edges(graph)]
    return "\n".join([*lines, "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def svg(graph: Graph) -> str:
    """Blocks below one another in the order of their code, those of loops further to the right; arrows forward on the
    right, back on the left."""
    depth = [max((loop.depth for loop in graph.loops if n in loop.blocks), default=0) for n in range(len(graph.blocks))]
    texts = [block_text(graph, n) for n in range(len(graph.blocks))]
    ways = [(one, to, how) for one, to, how in edges(graph) if to != one + 1 or how == "call"]
    lanes = _lanes([(min(one, to), max(one, to), to <= one) for one, to, _ in ways])
    left = PAD + STEP * (1 + max([lane for lane, (one, to, _) in zip(lanes, ways) if to <= one], default=0))
    width = max((WIDE * len(line) for text in texts for line in text), default=0) + 2 * PAD
    tops, y = [], float(LINE * 2)
    for text in texts:
        tops.append(y)
        y += LINE * len(text) + 2 * PAD + LINE
    indent = [left + STEP * 2 * d for d in depth]
    right = max(indent, default=0) + width
    whole = right + STEP * (2 + max([lane for lane, (one, to, _) in zip(lanes, ways) if to > one], default=0))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" height="{y:.0f}" font-family="monospace"'
        f' font-size="{FONT}">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>',
        '<rect class="paper" width="100%" height="100%" fill="white"/>',
        f'<text x="{PAD}" y="{LINE}">{escape(graph.kernel.name)}</text>',
    ]
    heights = [LINE * len(text) + 2 * PAD for text in texts]
    for n, text in enumerate(texts):
        fill = ("#fff", "#eef4ff", "#dde9ff", "#ccdeff")[min(depth[n], 3)]
        out.append(
            f'<rect x="{indent[n]:.0f}" y="{tops[n]:.0f}" width="{width:.0f}" height="{heights[n]}" fill="{fill}"'
            f' stroke="black" class="depth{min(depth[n], 3)}" data-block="{n}"/>'
        )
        for k, line in enumerate(text):
            place = f'x="{indent[n] + PAD:.0f}" y="{tops[n] + PAD + FONT + LINE * k:.0f}"'
            out.append(f'<text {place} xml:space="preserve">{escape(line)}</text>')
    for number, block in enumerate(graph.blocks):
        if number + 1 in block.next:
            x: float = max(indent[number], indent[number + 1]) + 3 * PAD
            out.append(_arrow(f"M{x:.0f} {tops[number] + heights[number]:.0f} V{tops[number + 1]:.0f}", "next"))
    for lane, (one, to, how) in zip(lanes, ways):
        start, end = tops[one] + heights[one] - PAD, tops[to] + PAD
        if to <= one:
            x = left - STEP * (lane + 1)
            out.append(_arrow(f"M{indent[one]:.0f} {start:.0f} H{x:.0f} V{end:.0f} H{indent[to]:.0f}", how))
        else:
            x = right + STEP * (lane + 1)
            path = f"M{indent[one] + width:.0f} {start:.0f} H{x:.0f} V{end:.0f} H{indent[to] + width:.0f}"
            out.append(_arrow(path, how))
    return "\n".join([*out, "</svg>", ""])


def _arrow(path: str, how: str) -> str:
    dashes = {"call": ' stroke-dasharray="6 3"', "indirect": ' stroke-dasharray="2 3"'}.get(how, "")
    return f'<path d="{path}" fill="none" stroke="black"{dashes} marker-end="url(#a)"/>'


def _lanes(spans: list[tuple[int, int, bool]]) -> list[int]:
    """A lane for each span, so that those of one side that overlap have different ones; short ones are nearest."""
    found = [0] * len(spans)
    taken: dict[bool, list[list[tuple[int, int]]]] = {False: [], True: []}
    for n in sorted(range(len(spans)), key=lambda n: spans[n][1] - spans[n][0]):
        low, high, side = spans[n]
        free = (lane for lane, others in enumerate(taken[side]) if all(high < a or b < low for a, b in others))
        lane = found[n] = next(free, len(taken[side]))
        if lane == len(taken[side]):
            taken[side].append([])
        taken[side][lane].append((low, high))
    return found
