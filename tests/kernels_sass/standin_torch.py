"""As much of PyTorch as a forward pass takes, on numpy: float32 and float64, NCHW and channels_last."""

from __future__ import annotations

import contextlib
import types

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


class Tensor(np.ndarray):
    def to(self, device):
        return self.copy()

    def contiguous(self, memory_format=None):
        return _ordered(self, memory_format is channels_last)

    def permute(self, *axes):
        return self.transpose(axes)

    def double(self):
        return self.astype(np.float64)

    def add_(self, other):
        self += other
        return self

    def fill_(self, value):
        self.fill(value)
        return self

    def norm(self):
        return np.linalg.norm(np.asarray(self).ravel())

    def flatten(self, start):
        return self.reshape(*self.shape[:start], -1)


channels_last = object()


def _last(x):
    return x.ndim == 4 and not x.flags.c_contiguous and x.transpose(0, 2, 3, 1).flags.c_contiguous


def _ordered(array, last):
    if last:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2).view(Tensor)
    return np.ascontiguousarray(array).view(Tensor)


def _windows(x, size, stride, padding, value):
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)), constant_values=value)
    return sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]


def conv2d(x, weight, bias, stride, padding):
    windows = _windows(x, weight.shape[2], stride[0], padding[0], 0)
    made = np.tensordot(windows, weight, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return _ordered(made if bias is None else made + bias[:, None, None], _last(x))


def batch_norm(x, mean, var, gamma, beta, training, momentum, epsilon):
    scale = gamma / np.sqrt(var + x.dtype.type(epsilon))
    return _ordered((x - mean[:, None, None]) * scale[:, None, None] + beta[:, None, None], _last(x))


def max_pool2d(x, size, stride, padding):
    return _ordered(_windows(x, size, stride, padding, -np.inf).max((4, 5)), _last(x))


def adaptive_avg_pool2d(x, size):
    return x.mean((2, 3), keepdims=True).view(Tensor)


def linear(x, weight, bias):
    return kept(x @ weight.T + bias)


def relu_(x):
    return np.maximum(x, 0, out=x)


def cudnn_convolution_relu(x, weight, bias, stride, padding, dilation, groups):
    raise RuntimeError("cuDNN has no such engine\nand a second line")


cudnn_convolution_add_relu = cudnn_convolution_relu


def from_numpy(array):
    return array.view(Tensor)


def cat(parts):
    return np.concatenate(parts).view(Tensor)


class CUDAGraph:
    """What it records runs at once; a replay brings back what came out of the last operation of a network."""

    recording = None

    def replay(self):
        made, copy = self.outputs
        made[...] = copy

    def reset(self):
        del self.outputs


def kept(made):
    if CUDAGraph.recording is not None:
        CUDAGraph.recording.outputs = made, made + 0
    return made


@contextlib.contextmanager
def graph(graph, stream, capture_error_mode, pool=None):
    CUDAGraph.recording = graph
    try:
        yield
    finally:
        CUDAGraph.recording = None


__version__ = "0.0"
no_grad = contextlib.nullcontext
nn = types.SimpleNamespace(functional=types.SimpleNamespace(
    conv2d=conv2d, batch_norm=batch_norm, max_pool2d=max_pool2d, adaptive_avg_pool2d=adaptive_avg_pool2d,
    linear=linear))  # fmt: skip
backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(benchmark=False, allow_tf32=True))
cuda = types.SimpleNamespace(ExternalStream=lambda handle, device: handle, stream=contextlib.nullcontext,
                             CUDAGraph=CUDAGraph, graph=graph, graph_pool_handle=object,
                             empty_cache=lambda: None)  # fmt: skip
