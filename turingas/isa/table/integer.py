"""Integer, logic, shift, permute and move instructions."""

from turingas.isa.grammar import ALL, rows

ROWS = rows()
