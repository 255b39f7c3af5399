"""How the shipped model's numbers are chosen: no saturation on any processor, and little error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from standard.embedding.export.graph import Int8Site, Site, all_sites
from standard.embedding.export.quantise import WEIGHT_LIMIT, quantise_site

WIDTH = 24


def checkpoint(seed: int, sizes: tuple[int, ...] = (16,)) -> tuple[dict[str, NDArray[np.float32]], Site]:
    random = np.random.default_rng(seed)
    weights: dict[str, NDArray[np.float32]] = {}
    for place, size in enumerate(sizes):
        weights[f"layer{place}.weight"] = random.normal(0, 0.1, (size, WIDTH)).astype(np.float32)
        weights[f"layer{place}.bias"] = random.normal(0, 1, size).astype(np.float32)
    return weights, Site("0.feed_in", tuple(f"layer{place}" for place in range(len(sizes))))


def apply(plan: Int8Site, activations: NDArray[np.float32], place: int = 0) -> NDArray[np.float64]:
    """What the graph computes: integers, then scale and bias."""
    entered = np.clip(np.rint(activations * plan.inverse_step) + plan.zero_point, 0, 255)
    layer = plan.layers[place]
    product: NDArray[np.float64] = (entered.astype(np.int64) @ layer.weight.astype(np.int64)) * layer.scale + layer.bias
    return product


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.floats(1, 40), st.sampled_from(["0.feed_in", "0.feed_hidden"]))
def test_no_pair_of_products_can_overflow_16_bits(seed: int, outlier: float, name: str) -> None:
    weights, site = checkpoint(seed)
    activations = np.random.default_rng(seed + 1).normal(size=(64, WIDTH)).astype(np.float32)
    activations[:, 3] *= np.float32(outlier)
    plan = quantise_site(weights, Site(name, site.layers), np.maximum(activations, -0.17), balance=0.75)
    weight = plan.layers[0].weight.astype(np.int64)
    assert np.abs(weight).max() <= WEIGHT_LIMIT
    assert 255 * (np.abs(weight[0::2]) + np.abs(weight[1::2])).max() <= 32_767
    assert 0 <= plan.zero_point <= 255


def test_a_channel_ten_times_as_large_does_not_cost_the_others_their_precision() -> None:
    weights, site = checkpoint(1)
    activations = np.random.default_rng(2).normal(size=(500, WIDTH)).astype(np.float32)
    activations[:, 5] *= 10
    plan = quantise_site(weights, site, activations, balance=0.75)
    exact = activations @ weights["layer0.weight"].T + weights["layer0.bias"]
    error = np.linalg.norm(apply(plan, activations) - exact) / np.linalg.norm(exact)
    one_step = np.abs(activations).max() / 127
    coarse = np.rint(activations / one_step) * one_step @ weights["layer0.weight"].T + weights["layer0.bias"]
    assert error < 0.02
    assert error < 0.7 * np.linalg.norm(coarse - exact) / np.linalg.norm(exact)


def test_what_rounding_shifts_on_average_is_given_back() -> None:
    weights, site = checkpoint(3)
    # Small positive values beside one large one round to nothing, all in the same direction.
    activations = np.full((400, WIDTH), 0.004, np.float32)
    activations[::50] = 1.0
    plan = quantise_site(weights, site, activations, balance=0.75)
    exact = activations @ weights["layer0.weight"].T + weights["layer0.bias"]
    assert apply(plan, activations)[1] == pytest.approx(exact[1], abs=2e-3)


def test_layers_that_share_an_input_keep_their_order_and_sizes() -> None:
    weights, site = checkpoint(4, (16, 8, 4))
    activations = np.random.default_rng(5).normal(size=(300, WIDTH)).astype(np.float32)
    plan = quantise_site(weights, site, activations, balance=0.75)
    for place, size in enumerate((16, 8, 4)):
        exact = activations @ weights[f"layer{place}.weight"].T + weights[f"layer{place}.bias"]
        assert plan.layers[place].weight.shape == (WIDTH, size)
        assert np.abs(apply(plan, activations, place) - exact).max() < 0.1


def test_every_linear_layer_of_the_encoder_is_at_exactly_one_site() -> None:
    names = [name for site in all_sites() for name in site.layers]
    assert len(names) == len(set(names)) == 6 * 6
