"""Texture and surface."""

from turingas.isa.grammar import ALL, rows

ROWS = rows()
