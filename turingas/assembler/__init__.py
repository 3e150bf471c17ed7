"""From source to cubins: the words of directives, the directives, and the assembler."""

from turingas.assembler.assembler import assemble

__all__ = ["assemble"]
