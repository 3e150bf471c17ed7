"""Loads, stores, atomics, caches and fences."""

from turingas.isa.grammar import ALL, rows

ROWS = rows()
