"""Converts a network and compares: `python -m examples.convert resnet18`, on a GPU if there is one, else on the CPU.

A name of torchvision is its network, with --weights its trained one; without torchvision, and for unet and vae_decoder,
it is the network of the same shape that kernels_sass.torch.models has, with random weights.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import click
import torch

from kernels_sass.torch import convert
from kernels_sass.torch.models import MODELS, random_inputs, random_model

CALLS = 20


def network(name: str, weights: bool) -> tuple[torch.nn.Module, str]:
    """The network in evaluation mode, and whose it is."""
    try:
        theirs = importlib.import_module("torchvision").models
        return theirs.get_model(name, weights="DEFAULT" if weights else None).eval(), "torchvision's"
    except ImportError:
        why = "torchvision is not installed"
    except ValueError as error:  # it has none of this name
        why = str(error)
    if weights or name not in MODELS:
        raise click.ClickException(f"there is no {name} with weights: {why}" if weights else f"no {name}: {why}")
    return random_model(name), "random"


def milliseconds(run: Callable[[], Any], device: torch.device) -> float:
    """Of a call, when many are queued."""

    def finished() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    run()
    finished()
    start = time.perf_counter()
    for _ in range(CALLS if device.type == "cuda" else 1):
        run()
    finished()
    return 1e3 * (time.perf_counter() - start) / (CALLS if device.type == "cuda" else 1)


@click.command()
@click.argument("name", default="resnet18")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True)
@click.option("--scale", type=click.IntRange(1), default=1, help="So many times fewer rows and columns.")
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu", show_default=True)
@click.option("--channels-last", is_flag=True, help="Both in that order.")
@click.option("--weights", is_flag=True, help="torchvision's trained ones, which it fetches.")
@click.option("--tune", is_flag=True, help="Time each layer, and keep the faster.")
def main(name: str, batch: int, scale: int, device: str, channels_last: bool, weights: bool, tune: bool) -> None:
    """Convert the network NAME, print what was replaced, and compare results and times."""
    model, whose = network(name, weights)
    order = torch.channels_last if channels_last else torch.contiguous_format
    inputs = random_inputs(name if name in MODELS else "resnet18", batch, scale=scale)
    inputs = tuple(one.to(device, memory_format=order) if one.dim() == 4 else one.to(device) for one in inputs)
    model = model.to(device, memory_format=order)

    converted, report = convert(model, inputs, tune=tune)
    click.echo(report)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
    with torch.no_grad():
        wanted, found = model(*inputs), converted(*inputs)
        click.echo(f"{name}, {whose}; batch {batch} on {device}: differs by {float((found - wanted).abs().max()):.2g}")
        if wanted.dim() == 2:
            same = float((found.argmax(1) == wanted.argmax(1)).double().mean())
            click.echo(f"the same class first: {100 * same:.0f}%")
        if inputs[0].is_cuda:
            for text, one in (("PyTorch", model), ("converted", converted)):
                ms = milliseconds(lambda one=one: one(*inputs), inputs[0].device)  # type: ignore[misc]
                click.echo(f"{text:10}{ms:9.3f} ms, {1e3 * batch / ms:9.1f} images a second")


if __name__ == "__main__":
    main()
