"""Networks to convert and to measure, with random weights: torchvision's ResNets, VGG-16, DenseNet-121 and ViT-B/16,
and the UNet and the decoder of Stable Diffusion 1. Their parameters are as many as the originals'; ``width`` makes them
smaller.

Sources: He et al. 2015; Zagoruyko, Komodakis 2016; Simonyan, Zisserman 2014; Huang et al. 2016; Dosovitskiy et al.
2020; Rombach et al. 2021; torchvision's documentation, for the number of parameters and for the names, so that its
weights can be loaded.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

CLASSES = 1000

# ---- ResNet ------------------------------------------------------------------------------------------------------


def _conv(c: int, k: int, size: int = 3, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(c, k, size, stride, size // 2, bias=bias)


class Basic(nn.Module):
    """A block of two 3 x 3 convolutions."""

    expansion = 1

    def __init__(self, c: int, k: int, inner: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(c, k, 3, stride), nn.BatchNorm2d(k)
        self.conv2, self.bn2 = _conv(k, k), nn.BatchNorm2d(k)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(c, k, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the same rows and columns, or half of them."""
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class Bottleneck(nn.Module):
    """A block of 1 x 1, 3 x 3 and 1 x 1."""

    expansion = 4

    def __init__(self, c: int, k: int, inner: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(c, inner, 1), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = _conv(inner, inner, 3, stride), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = _conv(inner, k, 1), nn.BatchNorm2d(k)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _downsample(c, k, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of the same rows and columns, or half of them."""
        y = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


def _downsample(c: int, k: int, stride: int) -> nn.Module | None:
    return nn.Sequential(_conv(c, k, 1, stride), nn.BatchNorm2d(k)) if stride > 1 or c != k else None


class ResNet(nn.Module):
    """``inner``: channels of a bottleneck's 3 x 3 convolution, for each of ``width``."""

    def __init__(self, block: Any, counts: Sequence[int], inner: int = 1, width: int = 64) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(3, width, 7, 2), nn.BatchNorm2d(width)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        c = width
        for stage, count in enumerate(counts):
            blocks, size = [], width << stage
            for number in range(count):
                k, stride = size * block.expansion, 2 if stage and not number else 1
                blocks.append(block(c, k, size * inner, stride))
                c = k
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(c, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N, 3, H, W -> N, 1000."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


# ---- VGG ---------------------------------------------------------------------------------------------------------


class VGG(nn.Module):
    """VGG-16: stages of 3 x 3 convolutions, each followed by a maximum over 2 x 2."""

    def __init__(self, counts: Sequence[int] = (2, 2, 3, 3, 3), width: int = 64) -> None:
        super().__init__()
        layers, c = list[nn.Module](), 3
        for stage, count in enumerate(counts):
            k = width << min(stage, 3)
            for _ in range(count):
                layers += [_conv(c, k, bias=True), nn.ReLU(inplace=True)]
                c = k
            layers.append(nn.MaxPool2d(2, 2))
        self.features, self.avgpool, inner = nn.Sequential(*layers), nn.AdaptiveAvgPool2d(7), 64 * width
        self.classifier = nn.Sequential(
            nn.Linear(49 * c, inner), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(inner, inner), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(inner, CLASSES),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N, 3, H, W -> N, 1000."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


# ---- DenseNet ----------------------------------------------------------------------------------------------------


class Dense(nn.Module):
    """A layer: its results stand beside all that was there."""

    def __init__(self, c: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.relu1, self.conv1 = nn.BatchNorm2d(c), nn.ReLU(inplace=True), _conv(c, 4 * growth, 1)
        self.norm2, self.relu2 = nn.BatchNorm2d(4 * growth), nn.ReLU(inplace=True)
        self.conv2 = _conv(4 * growth, growth)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """With ``growth`` channels more."""
        return torch.cat([x, self.conv2(self.relu2(self.norm2(self.conv1(self.relu1(self.norm1(x))))))], 1)


class DenseNet(nn.Module):
    """DenseNet-121."""

    def __init__(self, counts: Sequence[int] = (6, 12, 24, 16), width: int = 64) -> None:
        super().__init__()
        growth, c = width // 2, width
        parts = [("conv0", _conv(3, c, 7, 2)), ("norm0", nn.BatchNorm2d(c)), ("relu0", nn.ReLU(inplace=True)),
                 ("pool0", nn.MaxPool2d(3, 2, 1))]  # fmt: skip
        for stage, count in enumerate(counts, 1):
            layers = [(f"denselayer{n + 1}", Dense(c + n * growth, growth)) for n in range(count)]
            parts.append((f"denseblock{stage}", nn.Sequential(OrderedDict(layers))))
            c += count * growth
            if stage < len(counts):
                between = [("norm", nn.BatchNorm2d(c)), ("relu", nn.ReLU(inplace=True)), ("conv", _conv(c, c // 2, 1)),
                           ("pool", nn.AvgPool2d(2, 2))]  # fmt: skip
                parts.append((f"transition{stage}", nn.Sequential(OrderedDict(between))))
                c //= 2
        self.features = nn.Sequential(OrderedDict([*parts, ("norm5", nn.BatchNorm2d(c))]))
        self.classifier = nn.Linear(c, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N, 3, H, W -> N, 1000."""
        x = functional.relu(self.features(x), inplace=True)
        return self.classifier(torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1))


# ---- ViT ---------------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    """Of tokens to each other, by heads: the parameters are torch.nn.MultiheadAttention's, a graph has the products."""

    def __init__(self, c: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(3 * c, c)))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * c))
        self.out_proj = nn.Linear(c, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N, L, c -> N, L, c."""
        q, k, v = functional.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=2)
        q, k, v = (one.unflatten(2, (self.heads, -1)).transpose(1, 2) for one in (q, k, v))
        return self.out_proj(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Attention, and two layers for each token, both added."""

    def __init__(self, c: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.self_attention = nn.LayerNorm(c, 1e-6), SelfAttention(c, heads)
        self.ln_2 = nn.LayerNorm(c, 1e-6)
        self.mlp = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Dropout(0.0), nn.Linear(4 * c, c), nn.Dropout(0.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Where the tokens stand, and all layers."""

    def __init__(self, length: int, c: int, heads: int, count: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(nn.init.normal_(torch.empty(1, length, c), std=0.02))
        layers = ((f"encoder_layer_{n}", EncoderLayer(c, heads)) for n in range(count))
        self.layers, self.ln = nn.Sequential(OrderedDict(layers)), nn.LayerNorm(c, 1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape; a smaller picture has the first places."""
        return self.ln(self.layers(x + self.pos_embedding[:, : x.shape[1]]))


class VisionTransformer(nn.Module):
    """ViT-B/16."""

    def __init__(self, count: int = 12, width: int = 768, patch: int = 16, size: int = 224) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.encoder = Encoder(1 + (size // patch) ** 2, width, max(1, width // 64), count)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(width, CLASSES)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N, 3, H, W -> N, 1000."""
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1)
        return self.heads(self.encoder(x)[:, 0])


# ---- Stable Diffusion --------------------------------------------------------------------------------------------

GROUPS = 32


def _norm(c: int, eps: float = 1e-5) -> nn.GroupNorm:
    return nn.GroupNorm(GROUPS, c, eps)


class Residual(nn.Module):
    """Two 3 x 3 convolutions and, with ``times``, what the time adds between them."""

    def __init__(self, c: int, k: int, times: int = 0, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm1, self.conv1 = _norm(c, eps), _conv(c, k, bias=True)
        self.time = nn.Linear(times, k) if times else None
        self.norm2, self.conv2 = _norm(k, eps), _conv(k, k, bias=True)
        self.skip = _conv(c, k, 1, bias=True) if c != k else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        """k channels of the same rows and columns."""
        y = self.conv1(functional.silu(self.norm1(x)))
        if self.time is not None:
            y = y + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


class Attention(nn.Module):
    """Of ``x`` over ``other``, by heads."""

    def __init__(self, c: int, other: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k = nn.Linear(c, c, bias=False), nn.Linear(other, c, bias=False)
        self.v, self.out = nn.Linear(other, c, bias=False), nn.Linear(c, c)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """N, L, c and N, M, other -> N, L, c."""
        every = self.q(x), self.k(other), self.v(other)
        q, k, v = (one.unflatten(2, (self.heads, -1)).transpose(1, 2) for one in every)
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """Attention of pixels to each other and to a text, and a layer for each pixel."""

    def __init__(self, c: int, text: int, heads: int) -> None:
        super().__init__()
        self.norm, self.enter, self.leave = _norm(c, 1e-6), _conv(c, c, 1, bias=True), _conv(c, c, 1, bias=True)
        self.norm1, self.own = nn.LayerNorm(c), Attention(c, c, heads)
        self.norm2, self.text = nn.LayerNorm(c), Attention(c, text, heads)
        self.norm3, self.wide, self.narrow = nn.LayerNorm(c), nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

    def forward(self, x: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        y = self.enter(self.norm(x))
        size = y.shape[2:]
        y = y.flatten(2).transpose(1, 2)
        z = self.norm1(y)
        y = y + self.own(z, z)
        y = y + self.text(self.norm2(y), text)
        value, gate = self.wide(self.norm3(y)).chunk(2, dim=2)
        y = y + self.narrow(value * functional.gelu(gate))
        return x + self.leave(y.transpose(1, 2).unflatten(2, size))


class Up(nn.Module):
    """Twice as many rows and columns, and a convolution."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.conv = _conv(c, c, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N, c, 2 H, 2 W."""
        return self.conv(functional.interpolate(x, scale_factor=2.0, mode="nearest"))


class UNet(nn.Module):
    """That of Stable Diffusion 1: what of a latent picture is noise."""

    def __init__(self, width: int = 320, text: int = 768, heads: int = 8, steps: Sequence[int] = (1, 2, 4, 4)) -> None:
        super().__init__()
        times, last = 4 * width, len(steps) - 1
        self.register_buffer("rates", torch.exp(-math.log(10000) / (width // 2) * torch.arange(width // 2)), False)
        self.time = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times))
        self.enter = _conv(4, width, bias=True)
        self.down, self.up, c, there = nn.ModuleList(), nn.ModuleList(), width, [width]
        for level, step in enumerate(steps):
            for _ in range(2):
                self.down.append(self._block(c, step * width, times, text, heads, level < last))
                c = step * width
                there.append(c)
            if level < last:
                self.down.append(_conv(c, c, 3, 2, bias=True))
                there.append(c)
        self.middle = nn.ModuleList([Residual(c, c, times), Transformer(c, text, heads), Residual(c, c, times)])
        for level, step in reversed(list(enumerate(steps))):
            for number in range(3):
                block = self._block(c + there.pop(), step * width, times, text, heads, level < last)
                c = step * width
                if level and number == 2:
                    block.append(Up(c))
                self.up.append(block)
        self.norm, self.leave = _norm(c), _conv(c, 4, bias=True)

    @staticmethod
    def _block(c: int, k: int, times: int, text: int, heads: int, attends: bool) -> nn.ModuleList:
        return nn.ModuleList([Residual(c, k, times), *([Transformer(k, text, heads)] if attends else [])])

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """N, 4, H, W; N; N, L, 768 -> N, 4, H, W."""
        angles = time[:, None] * self.rates
        time = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        x = self.enter(x)
        there = [x]
        for block in self.down:
            x = self._through(block, x, time, text)
            there.append(x)
        x = self._through(self.middle, x, time, text)
        for block in self.up:
            x = self._through(block, torch.cat([x, there.pop()], 1), time, text)
        return self.leave(functional.silu(self.norm(x)))

    @staticmethod
    def _through(block: Any, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        for layer in block if isinstance(block, nn.ModuleList) else [block]:
            more = {Residual: (time,), Transformer: (text,)}.get(type(layer), ())
            x = layer(x, *more)
        return x


class Pixels(nn.Module):
    """Attention of pixels to each other, with one head."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.norm, self.q, self.k = _norm(c, 1e-6), _conv(c, c, 1, bias=True), _conv(c, c, 1, bias=True)
        self.v, self.out = _conv(c, c, 1, bias=True), _conv(c, c, 1, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        y = self.norm(x)
        q, k, v = (layer(y).flatten(2).transpose(1, 2)[:, None] for layer in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2)
        return x + self.out(y.unflatten(2, x.shape[2:]))


class Decoder(nn.Module):
    """That of Stable Diffusion 1's autoencoder: a picture of a latent one."""

    def __init__(self, width: int = 128, steps: Sequence[int] = (1, 2, 4, 4)) -> None:
        super().__init__()
        c = width * steps[-1]
        self.latent, self.enter = _conv(4, 4, 1, bias=True), _conv(4, c, bias=True)
        layers: list[nn.Module] = [Residual(c, c, eps=1e-6), Pixels(c), Residual(c, c, eps=1e-6)]
        for level, step in reversed(list(enumerate(steps))):
            for _ in range(3):
                layers.append(Residual(c, step * width, eps=1e-6))
                c = step * width
            layers += [Up(c)] if level else []
        self.layers = nn.Sequential(*layers)
        self.norm, self.leave = _norm(c, 1e-6), _conv(c, 3, bias=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """N, 4, H, W -> N, 3, 8 H, 8 W."""
        return self.leave(functional.silu(self.norm(self.layers(self.enter(self.latent(x))))))


# ---- all of them -------------------------------------------------------------------------------------------------

SIZES = {"picture": (3, 224, 224), "latent": (4, 64, 64), "text": (77, 768)}


@dataclass(frozen=True)
class Model:
    """``make(width=...)`` gives the network; ``width``: its own. ``parameters``: how many there are. ``inputs``: names
    of SIZES, and "time". ``classes``: whether its results are logits."""

    make: Callable[..., nn.Module]
    width: int
    parameters: int
    inputs: tuple[str, ...] = ("picture",)
    classes: bool = True


MODELS = {
    "resnet18": Model(lambda **of: ResNet(Basic, (2, 2, 2, 2), **of), 64, 11_689_512),
    "resnet34": Model(lambda **of: ResNet(Basic, (3, 4, 6, 3), **of), 64, 21_797_672),
    "resnet50": Model(lambda **of: ResNet(Bottleneck, (3, 4, 6, 3), **of), 64, 25_557_032),
    "wide_resnet50_2": Model(lambda **of: ResNet(Bottleneck, (3, 4, 6, 3), 2, **of), 64, 68_883_240),
    "vgg16": Model(VGG, 64, 138_357_544),
    "densenet121": Model(DenseNet, 64, 7_978_856),
    "vit_b_16": Model(VisionTransformer, 768, 86_567_656),
    "unet": Model(UNet, 320, 859_520_964, ("latent", "time", "text"), False),
    "vae_decoder": Model(Decoder, 128, 49_490_199, ("latent",), False),
}


def random_model(name: str, seed: int = 0, width: int | None = None, device: str = "cpu") -> nn.Module:
    """A network in evaluation mode, with random parameters and statistics with which numbers keep their size. Made on
    the device, where other numbers come of the same seed."""
    there = torch.device(device)
    with torch.random.fork_rng(devices=[] if device == "cpu" else [there]), there:
        torch.manual_seed(seed)
        made = MODELS[name].make(width=width or MODELS[name].width)
        for module in made.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                kind = "relu" if MODELS[name].classes else "linear"
                nn.init.kaiming_normal_(module.weight, nonlinearity=kind)
                if module.bias is not None:
                    nn.init.uniform_(module.bias, -0.1, 0.1)
            elif isinstance(module, nn.BatchNorm2d):
                bounds = (-0.2, 0.2), (0.7, 1.4), (0.3, 0.8), (-0.2, 0.2)
                for tensor, of in zip((module.running_mean, module.running_var, module.weight, module.bias), bounds):
                    nn.init.uniform_(tensor, *of)
    return made.eval()


def random_inputs(name: str, batch: int, seed: int = 1, scale: int = 1) -> tuple[torch.Tensor, ...]:
    """What it takes, in the host's memory; ``scale``: of a picture so many times fewer rows and columns."""
    random, found = torch.Generator().manual_seed(seed), list[torch.Tensor]()
    for what in MODELS[name].inputs:
        if what == "time":
            found.append(torch.rand(batch, generator=random) * 999)
        else:
            first, *rest = SIZES[what]
            size = (first, *rest) if what == "text" else (first, *(one // scale for one in rest))
            found.append(torch.randn(batch, *size, generator=random))
    return tuple(found)
