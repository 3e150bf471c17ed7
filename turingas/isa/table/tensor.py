"""Tensor cores and the loads that feed them."""

from turingas.isa.grammar import ALL, rows

ROWS = rows()
