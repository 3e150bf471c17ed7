"""FP32, FP16/BF16 packed and FP64 arithmetic, MUFU."""

from turingas.isa.grammar import ALL, rows

ROWS = rows(
    ("FFMA{fmz}{rnd}{sat} Rd, -|Ra|, -|Fb|, -|Fc|", 0x023, {}, ALL),
    ("FADD{ftz}{rnd}{sat} Rd, -|Ra|, -|Fc|", 0x021, {}, ALL),
    ("FMUL{fmz}{rnd}{sat} Rd, -|Ra|, -|Fb|", 0x020, {}, ALL),
)
