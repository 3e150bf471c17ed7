"""The cubin as users have it: what it holds, read from a file and written to one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from turingas.cubin.model import Parts, html
from turingas.cubin.read import read
from turingas.cubin.split import rewrite
from turingas.cubin.write import build


@dataclass(repr=False)
class Cubin(Parts):
    """A cubin. Read one with from_bytes or from_file, or have turingas.assemble make one."""

    @classmethod
    def from_bytes(cls, data: bytes) -> Cubin:
        """Read a cubin of CUDA 11, 12 or 13. CubinError says what is wrong, and where."""
        return cls(**vars(read(data)))

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Cubin:
        """Read the cubin ``path``."""
        with open(path, "rb") as file:
            return cls.from_bytes(file.read())

    def __repr__(self) -> str:
        kernels = ", ".join(kernel.name for kernel in self.kernels[:4]) + ", ..." * (len(self.kernels) > 4)
        return f"<Cubin {self.arch}, {len(self.kernels)} kernels: {kernels}>"

    def _repr_html_(self) -> str:
        """A table of the kernels, for notebooks."""
        return html(self.arch, self.kernels)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For pickle and copy: what was read has views of the file, which do not pickle."""
        return super().__reduce_ex__(protocol) if self.source is None else (Cubin.from_bytes, (self.to_bytes(),))

    def to_bytes(self) -> bytes:
        """The file. One that was read and not changed comes back byte for byte."""
        return build(self).to_bytes() if self.source is None else rewrite(self)
