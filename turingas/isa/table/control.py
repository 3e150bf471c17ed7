"""Branches, convergence, barriers, predicates, warp-wide and special-register instructions."""

from turingas.isa.grammar import ALL, rows

ROWS = rows()
