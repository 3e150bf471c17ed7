"""GPUs, through the driver API of cuda-python (``cuda.bindings.driver``, CUDA 12 and 13): modules, launches, memory.

``launch`` allocates nothing and waits for nothing. It queues the kernel on the stream that it is given, as a number, as
an object of cuda-python, PyTorch (``cuda_stream``) or CuPy (``ptr``), or of anything with ``__cuda_stream__``; without
one on the caller's current stream: that of PyTorch or CuPy if the first array that has one is theirs, else the stream
that the array names in ``__cuda_array_interface__``, else the default stream. Arrays are used in place, so they must
lie on the GPU; numpy arrays go there and back through a ``Buffer``.

Everything lives in the device's primary context, which PyTorch, CuPy, JAX and the runtime API use too.
"""

from loader.cuda.errors import ContextLost, CudaError
from loader.cuda.gpu import Device, count, device, device_named, driver
from loader.cuda.kernel import CudaKernel, CudaModule
from loader.cuda.memory import Buffer
from loader.cuda.streams import Graph, Stream, handle_of

__all__ = [
    "Buffer", "ContextLost", "CudaError", "CudaKernel", "CudaModule", "Device", "Graph", "Stream", "count", "device",
    "device_named", "driver", "handle_of",
]  # fmt: skip
