"""turingas report: a page that stands alone, what is on it, and how it looks in a browser."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import turingas
from tests.browser import DESK, PHONE, browser, opened
from turingas.cli import main

LEARN = Path(__file__).parent.parent / "kernels_sass" / "learn"
SCALE = LEARN / "02_scale.sass"
RUN = ["--run", "f32[64]=random f32[64] 64 2.5", "--grid", "2", "--block", "32"]
HOSTILE = "</script><script>document.title='taken'</script>"
PLAIN = """.arch sm_90
.kernel plain
<params>
to, 8
</params>
<smem> 4096 </smem>
--:-:0:-:1  S2R R0, SR_TID.X;
--:-:-:-:1  MOV R5, RZ;
01:-:-:-:6  IMAD.SHL.U32 R1, R0, 0x80, RZ;
again:
--:-:0:-:1  LDS R2, [R1];
01:-:-:-:4  FADD R3, R2, 1;
--:-:-:-:4  FMUL R3, R3, 2;
--:0:-:-:1  STS [R1], R3;
01:-:-:-:6  IADD3 R5, R5, 0x1, RZ;
--:-:-:Y:13 ISETP.LT.AND P0, PT, R5, 0x4, PT;
--:-:-:Y:6  @P0 BRA again;
--:-:-:-:5  EXIT;
"""  # nothing in it has a name
LATE = ".arch sm_90\n.kernel late\n--:-:0:-:2 S2R R0, SR_TID.X;\n--:-:-:-:2 IADD3 R1, R0, 0x1, RZ;\n--:-:-:-:5 EXIT;\n"


def report(*words: object, code: int = 0) -> str:
    """What the command prints on stdout: the page."""
    done = CliRunner().invoke(main, ["report", *map(str, words)])
    assert done.exit_code == code, done.output
    return done.output


def facts(page: str) -> list[dict]:
    """What the page knows of each kernel."""
    return [json.loads(one) for one in re.findall(r'type="application/json" id="kernel\d+">(.*?)</script>', page)]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "scale.html"
    report(SCALE, "--arch", "sm_90", *RUN, "-o", path)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    source = tmp_path_factory.mktemp("report") / "plain.sass"
    source.write_text(PLAIN)
    report(source, "--run", "0", "--block", "32", "-o", source.with_suffix(".html"))
    return source.with_suffix(".html")


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


# ---- what is written -------------------------------------------------------------------------------------------------


def test_it_stands_alone(page):
    text = page.read_text()
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//|@import|url\((?!data:|#)", text)
    assert "default-src 'none'" in text  # nor would the browser load anything


def test_what_it_knows(page):
    (kernel,) = facts(page.read_text())
    assert kernel["name"] == "scale" and len(kernel["text"]) == 48
    assert kernel["run"]["instructions"] == 33 and not kernel["run"]["error"]
    assert kernel["names"]["R0"] and kernel["peaks"]["R"] and len(kernel["boards"]) == 6 and kernel["findings"]


def test_several_files_and_kernels(tmp_path):
    made = facts(report(SCALE, LEARN / "03_sum.sass", "-o", "-"))
    assert [one["name"] for one in made][0] == "scale" and len(made) > 1
    cubin = tmp_path / "scale.cubin"
    cubin.write_bytes(turingas.assemble(SCALE.read_text(), filename=str(SCALE)).to_bytes())
    assert [one["name"] for one in facts(report(cubin, "-o", "-", "--kernel", "sc*"))] == ["scale"]


def test_names_and_comments_run_no_script(tmp_path, chromium):
    source = tmp_path / "hostile.sass"
    source.write_text(f".arch sm_90\n.kernel k\n# {HOSTILE}\n--:-:-:-:5 EXIT; # {HOSTILE}\n")
    made = tmp_path / f"{HOSTILE.replace('/', '_')}.html"
    report(source, "-o", made)
    assert HOSTILE not in made.read_text()
    with opened(chromium) as there:
        shown = there.open(made)
        assert shown.title() == "hostile.sass" and not there.errors


@pytest.mark.parametrize("words, said", [
    (["--kernel", "nothing"], "there is no kernel nothing\nhint: there are: scale"),
    (["--run", "f32[64]"], "4 arguments"),
    ([LEARN / "03_sum.sass", "--run", "1"], "one FILE"),
])  # fmt: skip
def test_what_cannot_be(words, said, tmp_path):
    path = tmp_path / "no.html"
    done = CliRunner().invoke(main, ["report", str(SCALE), *map(str, words), "-o", str(path)])
    assert done.exit_code in (1, 2) and said in done.output and not path.exists(), done.output


def test_a_run_that_fails_is_on_the_page(tmp_path):
    path = tmp_path / "fault.html"
    words = ["--run", "f32[1] f32[1] 64 2.5", "--grid", "2", "--block", "32", "-o", path]
    assert "02_scale.sass" in report(SCALE, "--arch", "sm_90", *words, code=1)
    assert facts(path.read_text())[0]["run"]["error"]


# ---- how it looks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size, scheme", [(DESK, "light"), (PHONE, "dark")], ids=["desk", "phone"])
def test_every_view_opens(size, scheme, page, chromium):
    with opened(chromium, size, scheme) as there:
        shown = there.open(page)
        for tab in ("listing", "source", "loops", "graph", "registers", "findings", "run"):
            there.open(page, f"0/{tab}")
            assert shown.locator(f"#{tab}").is_visible(), tab
            assert len(shown.locator(f"#{tab}").inner_text()) > 10, tab
            assert there.too_wide() <= 0, tab
        assert not there.errors and not there.fetched


def test_nothing_is_shown_of_what_is_not_there(plain, chromium):
    with opened(chromium) as there:
        shown = there.open(plain)
        for tab in ("listing", "source", "loops", "graph", "registers", "findings", "run"):
            there.open(plain, f"0/{tab}")
            assert not re.search(r"false|undefined|NaN|null", shown.inner_text("body")), tab
        assert not there.errors


def test_heads_stand_over_their_columns(page, chromium):
    with opened(chromium) as there:
        shown = there.open(page)
        lefts = "all => all.map(one => Math.round(one.getBoundingClientRect().left))"
        heads = shown.eval_on_selector_all("#head > span", lefts)
        cells = shown.eval_on_selector_all("#rows .row.code:nth-child(2) > *", lefts)
        assert len(heads) > 10 and heads == cells


def test_source_lines_with_what_they_cost(plain, chromium):
    with opened(chromium) as there:
        shown = there.open(plain, "0/source")
        line = PLAIN.splitlines().index("--:-:0:-:1  LDS R2, [R1];") + 1
        row = shown.locator(f"tr[data-line='{line}']")
        heads = [one.strip() for one in shown.locator("#source th").all_inner_texts()]
        costs = dict(zip(heads, (one.strip() for one in row.locator("td").all_inner_texts()), strict=True))
        # four rounds of one warp; 32 lanes that are 128 bytes apart hit one bank
        assert [costs[one] for one in ("warps", "cycles", "wavefr.", "confl.")] == ["4", "4", "128", "124"]
        row.click()
        assert "LDS R2" in shown.locator("tr.under").inner_text()
        shown.locator("tr.under a", has_text="all of them").click()
        assert shown.locator("#listing").is_visible()
        (hit,) = shown.locator("#rows .row.hit").all_inner_texts()
        assert [hit] == shown.locator("#rows .row.selected").all_inner_texts()
        there.open(plain, "0/source")
        assert not there.errors


def test_an_instruction_is_explained(page, chromium):
    with opened(chromium) as there:
        shown = there.open(page, "0/0000")
        assert "special register" in shown.locator("#detail").inner_text()  # what S2R does
        shown.keyboard.press("w")
        written = re.compile(r"R\d+\s*\w* written at 0x0000")  # once the browser has told of the new place
        shown.locator("#detail", has_text=written).wait_for()


def test_links_work_where_the_browser_does_not_follow_them(page, chromium):
    """VS Code keeps the clicks on links of its views to itself: it looks for them behind the page's own listeners."""
    with opened(chromium) as there:
        shown = there.open(page)
        shown.evaluate("document.body.addEventListener('click', event => event.preventDefault())")
        shown.locator("#tabs a", has_text="graph").click()
        assert shown.locator("#graph").is_visible()


def test_the_map_is_drawn_once(page, chromium):
    """Not for every step of a scroll: with 20,000 instructions and a run that took 80 ms."""
    with opened(chromium) as there:
        shown = there.open(page)
        shown.evaluate("before = mapDrawn.canvas")
        assert shown.evaluate("$('list').scrollTop = 300, drawRows(false), mapDrawn.canvas === before")
        assert shown.evaluate("foldAll(true), mapDrawn.canvas !== before")


def test_peaks_that_are_alike_are_named_together(plain):
    drawn = facts(plain.read_text())[0]["run"]["roofline"]["svg"]
    assert re.findall(r">(F\w+[^<]*: \d+)<", drawn) == ["FADD, FMUL: 128"]


def test_the_listing(page, chromium):
    with opened(chromium) as there:
        shown = there.open(page)
        rows = shown.locator("#rows .row.code")
        assert "S2R" in rows.first.inner_text() and "threadIdx.x" in rows.first.inner_text()  # with its source
        assert shown.locator("#rows .arrows path").count() > 3  # from who sets scoreboards to who waits
        rows.nth(int(shown.locator(".arrows [data-from]").first.get_attribute("data-from"))).hover()
        assert shown.locator(".arrows .pointed").count()
        shown.keyboard.press("/")
        shown.keyboard.type("STG")
        shown.keyboard.press("Enter")
        assert "of" in shown.locator("#hits").inner_text() or shown.locator("#hits").inner_text()
        assert "STG" in shown.locator("#rows").inner_text()


def test_a_loop_on_a_cycle_axis(tmp_path, chromium):
    report(LEARN / "08_sgemm.sass", "--arch", "sm_90", "-o", tmp_path / "sgemm.html")
    with opened(chromium, scheme="dark") as there:
        shown = there.open(tmp_path / "sgemm.html", "0/loops")
        assert "FFMA" in shown.locator("#loops").inner_text()
        shown.locator("#loops [data-pipe=fma]").first.hover()
        assert "FFMA" in shown.locator("#loops .said").inner_text()
        colours = "all => all.map(one => getComputedStyle(one).fill)"
        fills = shown.eval_on_selector_all("#loops [data-pipe=fma]", colours)
        assert len(fills) > 100 and set(fills) != {"rgb(0, 0, 0)"}  # each pipe has its colour
        assert not there.errors


def test_findings_stand_in_place(tmp_path, chromium):
    source = tmp_path / "late.sass"
    source.write_text(LATE)
    report(source, "-o", tmp_path / "late.html")
    with opened(chromium) as there:
        shown = there.open(tmp_path / "late.html")
        assert "scoreboard" in shown.locator("#rows").inner_text()
        assert not there.errors


def test_a_link_to_an_instruction(page, chromium):
    with opened(chromium) as there:
        shown = there.open(page)
        shown.keyboard.press("j")
        address = shown.evaluate("location.hash")
        with opened(chromium) as other:
            again = other.open(page, address.lstrip("#"))
            assert again.evaluate("location.hash") == address and not other.errors


def test_twenty_thousand_instructions(tmp_path, chromium):
    source = tmp_path / "long.sass"
    line = "--:-:-:-:4 FFMA R{a}, R{b}, R{c}, R{a};"
    body = "\n".join(line.format(a=n % 60, b=60 + n % 7, c=70 + n % 5) for n in range(20_000))
    source.write_text(f".arch sm_90\n.kernel long\n{body}\n--:-:-:-:5 EXIT;\n")
    report(source, "-o", tmp_path / "long.html")
    with opened(chromium) as there:
        start = time.monotonic()
        shown = there.open(tmp_path / "long.html")
        shown.locator("#rows .row.code").first.wait_for()
        assert time.monotonic() - start < 3 * 3  # 3 seconds, on a machine that has other things to do
        assert shown.locator("#rows .row.code").count() < 1000  # what is not seen is not drawn
