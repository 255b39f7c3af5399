"""Choosing the numbers of the int8 model: one step for each input channel, 7-bit weights, a corrected bias.

Dynamic quantisation takes one step for a whole tensor at run time. In this encoder a few channels are ten times as
large as the rest, so the others lose their precision, and the step, and with it a text's vector, depends on the texts
of the batch. Here each channel k has a constant step in proportion to range[k]^a / weight[k]^(1-a), the balance between
activations and weights of SmoothQuant (Xiao et al., 2023, arXiv:2211.10438), with the ranges seen on calibration text.
What rounding shifts on average is given back through the bias (Nagel et al., 2019, arXiv:1906.04721).

Weights have 7 bits: on x86 without VNNI (AMD before Zen 4, Intel before Ice Lake) the product of unsigned and signed
bytes is added up in pairs of 16 bits and saturates: 2 * 255 * 127 is above 32,767, 2 * 255 * 63 is not. So every
processor computes the same integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from standard.embedding.export.graph import Int8Layer, Int8Site, Site, linear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from standard.embedding.export.graph import Floats

WEIGHT_LIMIT = 63
_LEVELS = 255
# The least value of GELU; its outputs use the unsigned range better with a low zero point.
_GELU_LEAST = np.float32(0.17)
_SMALLEST = np.float32(1e-6)


def quantise_site(weights: Mapping[str, Floats], site: Site, activations: Floats, *, balance: float) -> Int8Site:
    """Quantise the layers that a site feeds.

    `activations` (tokens, k) are the float model's on calibration text; `balance` (0-1) is SmoothQuant's alpha:
    how much of a channel's range the weights take over.
    """
    matrices, biases = zip(*(linear(weights, name) for name in site.layers), strict=True)
    weight = np.concatenate(matrices, axis=1).astype(np.float64)
    after_gelu = site.name.endswith("feed_hidden")
    high, low = activations.max(axis=0), activations.min(axis=0)
    ranges = high + _GELU_LEAST if after_gelu else 2 * np.maximum(np.abs(high), np.abs(low))
    # A zero point above the least value takes its levels from the top: the few largest values are clipped there.
    # Clipped, and corrected through the bias, texts came out nearer to the float model than with wider steps.
    steps = _steps(np.maximum(ranges, _SMALLEST), np.abs(weight).max(axis=1), balance)
    zero_point = int(np.ceil((_GELU_LEAST / steps).max())) if after_gelu else (_LEVELS + 1) // 2
    stepped = weight * steps[:, None]
    scale = np.abs(stepped).max(axis=0) / WEIGHT_LIMIT
    whole = np.round(stepped / scale)

    seen = activations.astype(np.float64)
    entered = np.clip(np.round(seen / steps) + zero_point, 0, _LEVELS) - zero_point
    target = seen @ weight
    error = target - entered @ whole * scale
    # A token counts by the error relative to its size: a few huge ones would else decide.
    trust = 1 / np.maximum((target**2).sum(axis=1, keepdims=True), _SMALLEST)
    correction = (error * trust).sum(axis=0) / trust.sum()
    shift = correction - scale * (zero_point * whole.sum(axis=0))

    layers, first = [], 0
    for bias in biases:
        part = slice(first, first + len(bias))
        layers.append(
            Int8Layer(
                whole[:, part].astype(np.int8),
                scale[part].astype(np.float32),
                (bias + shift[part]).astype(np.float32),
            )
        )
        first += len(bias)
    return Int8Site((1 / steps).astype(np.float32), zero_point, tuple(layers))


def _steps(ranges: Floats, weight_sizes: NDArray[np.float64], balance: float) -> NDArray[np.float64]:
    """A step for each channel (k,), as small as lets every channel's range fit into the levels."""
    shape = ranges**balance / np.maximum(weight_sizes, _SMALLEST) ** (1 - balance)
    steps: NDArray[np.float64] = shape * ((ranges / shape).max() / _LEVELS)
    return steps
