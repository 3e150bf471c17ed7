"""What the driver refuses, and what a kernel does wrong."""

from __future__ import annotations

#: after these the context is of no use any more: every call in the process fails
LOST = {
    214: "", 220: "", 702: "",
    700: "the kernel used an address outside this GPU's memory",
    709: "", 710: "an assert in the kernel failed",
    714: "a call stack or a barrier was broken",
    715: "the code has an instruction that this GPU does not know, or reaches the shared memory of another block",
    716: "an address was not a multiple of the size of the access",
    717: "a shared or local address was used where only a global one may stand, or the other way round",
    718: "the program counter left the code: no EXIT at the end, or a wrong branch",
    719: "the kernel failed",
}  # fmt: skip


class CudaError(RuntimeError):
    """The driver refused something, or a kernel faulted.

    ``name`` and ``code`` are CUDA's ("CUDA_ERROR_ILLEGAL_ADDRESS", 700), ``meaning`` its sentence for it, ``kernel``
    the kernel that was launched, or the last one before. ``lost``: the context is lost, see ``ContextLost``.
    """

    def __init__(self, message: str, name: str, code: int, meaning: str, kernel: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.name, self.code, self.meaning = message, name, code, meaning
        self.kernel, self.hint, self.lost = kernel, hint, code in LOST

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, self.name, self.code, self.meaning, self.kernel, self.hint)

    def __str__(self) -> str:
        return self.message + (f"\nhint: {self.hint}" if self.hint else "")


class ContextLost(CudaError):
    """A kernel faulted earlier. Nothing runs on this GPU any more until the process is started anew."""
