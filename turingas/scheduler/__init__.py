"""Works out the stall counts and reuse flags of code whose writer says no more than the scoreboards: for inline Python.

``settle(lines, names)`` takes source lines with ``*`` in the place of the stall and gives them back with numbers. The
cycles are those of turingas/isa/latency, which the linter and the CPU device's strict mode keep too.
"""

from turingas.scheduler.line import Line, parts, settle
from turingas.scheduler.reuse import flags
from turingas.scheduler.stalls import stalls
from turingas.scheduler.weave import Weave

__all__ = ["Line", "Weave", "flags", "parts", "settle", "stalls"]
