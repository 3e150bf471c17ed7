"""GELU of registers, for sources that include this file: x times the part of a normal distribution below x.

``GELU=1``: that part by its logarithm to base 2, for -|x| a polynomial (found by least squares, weights moved until the
largest error is smallest, up to 7): within 5e-8 of it, and within 2e-5 of itself up to 7; further out it falls to 0.
``GELU=2``: as PyTorch's approximate="tanh" has it, 1 / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3))). GELU of minus
infinity is NaN, as PyTorch's. Checked by tests/kernels_sass/test_gemm.py."""

LOGARITHM = (  # of x^9, x^8 ...: (log2(part) + 1) / |x|
    -1.5863470537169633e-08, 5.398775329013006e-07, -7.738113708910532e-06, 5.902806151425466e-05,
    -0.00022526019893120974, -0.00010002489580074325, 0.00705291610211134, -0.05250199884176254,
    -0.4592044949531555, -1.1511056423187256,
)  # fmt: skip
TANH = -2 * (2 / 3.141592653589793) ** 0.5 * 1.4426950408889634
AT_ONCE = 4


def gelu(way: int, values: list[int], room: int) -> list[str]:
    """Lines, for the registers with these numbers; 8 from ``room`` on, and P0, are written."""
    made = []
    for start in range(0, len(values), AT_ONCE):
        each = [(x, room + 2 * n, room + 2 * n + 1) for n, x in enumerate(values[start : start + AT_ONCE])]
        if way == 2:
            steps: tuple[str, ...] = ("FMUL R{p}, R{x}, R{x};", f"FMUL R{{p}}, R{{p}}, {TANH * 0.044715!r};",
                     f"FADD R{{p}}, R{{p}}, {TANH!r};", "FMUL R{p}, R{p}, R{x};", "MUFU.EX2 R{p}, R{p};",
                     "FADD R{p}, R{p}, 1;", "MUFU.RCP R{p}, R{p};", "FMUL R{x}, R{x}, R{p};")  # fmt: skip
        else:
            steps = ("FADD R{t}, |R{x}|, -RZ;", f"FADD R{{p}}, RZ, {LOGARITHM[0]!r};",
                     *(f"FFMA R{{p}}, R{{p}}, R{{t}}, {one!r};" for one in LOGARITHM[1:]),
                     "FFMA R{p}, R{p}, R{t}, -1;", "MUFU.EX2 R{p}, R{p};", "FADD R{t}, -R{p}, 1;",
                     "FSETP.LT.AND P0, PT, R{x}, RZ, PT;\nFSEL R{t}, R{p}, R{t}, P0;",
                     "FMUL R{x}, R{x}, R{t};")  # fmt: skip
        for step in steps:
            for x, t, p in each:
                made.append(step.format(x=x, t=t, p=p))
    return made
