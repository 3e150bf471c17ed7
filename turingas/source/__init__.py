"""The source language: text -> instructions, labels and directives."""

from turingas.source.parse import Directive, Instruction, Item, Label, Parsed, read

__all__ = ["Directive", "Instruction", "Item", "Label", "Parsed", "read"]
