"""A kernel to tune, and its bench file."""

from turingas.check.lint import lint_kernel

SOURCE = """
.arch sm_90
.kernel two
.param y, f32*
.param a, f32*
.param b, f32*
    S2R R0, SR_TID.X;
    ULDC.64 UR4, c[0x0][0x208];
    MOV R9, 0x4;
    IMAD.WIDE R2, R0, R9, c[0x0][0x218];
    IMAD.WIDE R10, R0, R9, c[0x0][0x220];
    IMAD.WIDE R12, R0, R9, c[0x0][0x210];
    LDG.E R4, desc[UR4][R2.64];
    FMUL R5, R4, R4;
    LDG.E R6, desc[UR4][R10.64];
    FFMA R5, R6, R6, R5;
    STG.E desc[UR4][R12.64], R5;
    EXIT;
"""
BENCH = 'grid, block = 2, 32\narguments = ["f32[32]", "f32[32]=random", "f32[32]=random"]\n'


def kinds_of(kernel):
    """What the linter finds."""
    return {f.kind for f in lint_kernel(kernel) if f.severity != "note"}
