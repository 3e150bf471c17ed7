"""The turingas command: parses options, calls the library, prints. Every command imports what it needs when it runs."""

from __future__ import annotations

import click

from turingas.cli import bench, code, device, diff, lint, listing, lsp, report
from turingas.cli.output import Commands


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turingas")
def main() -> None:
    """Assembler and disassembler for the machine code (SASS) of NVIDIA GPUs, Volta to Blackwell.

    \b
    To begin with:
      turingas assemble kernel.sass            writes kernel.cubin
      turingas info kernel.cubin               registers, memory, occupancy
      turingas lint kernel.sass                what the hardware silently gets wrong
      turingas disassemble kernel.cubin        source that assembles to it again
      turingas diff before.cubin after.cubin   what changed, and what got slower
      turingas report kernel.sass              a page to look at it in a browser
      turingas isa FFMA --arch sm_80           how an instruction is written

    A .cubin is loaded with cuModuleLoad of the CUDA driver API. Exit codes: 0 done, 1 the input is wrong (diagnostics
    on stderr), 2 wrong usage.
    """


for _command in (
    *(code.assemble, code.schedule, code.extract, listing.disassemble, lint.check, lint.lint, diff.diff),
    *(code.info, code.isa, report.report),
    *(device.run, device.validate, device.tune, device.kernels),
    bench.bench,
    lsp.lsp,
):
    main.add_command(_command)
