"""Asynchronous copies, mbarriers and clusters (sm_90)."""

from turingas.isa.grammar import ALL, rows

ROWS = rows()
