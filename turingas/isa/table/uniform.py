"""The uniform datapath (sm_75 and later)."""

from turingas.isa.grammar import ALL, rows

ROWS = rows()
