"""The MiniLM encoder (a BERT of 6 layers) as an ONNX graph, in float or with int8 linear layers.

The graph is written node by node rather than traced from PyTorch: it stays the same under every version of torch and
transformers, and its form can follow what onnxruntime runs fast on a CPU:

- inputs are `input_ids` (batch, tokens) int64 and `lengths` (batch) int32, the tokens of each row before the padding;
- query, key and value are three products over one quantised input (one wide product and a split are slower);
- Add + LayerNormalization, which is vectorised; the fused SkipLayerNormalization is not, and takes four times as long.

In the int8 form every linear layer computes, over uint8 inputs q and int8 weights w (see `quantise`),

    y[n] = scale[n] * sum_k q[k] * w[k, n] + bias[n],   q[k] = clip(round(x[k] * inverse_step[k]) + zero_point)

with `bias` carrying the zero point's share. The steps are constants, so a text's vector does not depend on the texts it
is batched with. The int8 layers use onnxruntime's operator MatMulIntegerToFloat, the rest is fp32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDDEN = 384
HEADS = 12
LAYERS = 6
MAX_POSITIONS = 512
OUTPUT = "last_hidden_state"
_EPSILON = 1e-12
_MICROSOFT = "com.microsoft"

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Site:
    """A place where activations enter linear layers: its name, and the names of those layers in the checkpoint."""

    name: str
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Int8Layer:
    """A quantised linear layer: `weight` (k, n) int8, `scale` (n,), `bias` (n,)."""

    weight: NDArray[np.int8]
    scale: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class Int8Site:
    """How a site is quantised: `inverse_step` (k,), `zero_point` (0-255), and its layers in the site's order."""

    inverse_step: Floats
    zero_point: int
    layers: tuple[Int8Layer, ...]


def sites(layer: int) -> tuple[Site, Site, Site, Site]:
    """The four sites of a layer (0-5): into attention, out of attention, into and within the feed-forward part."""
    at = f"encoder.layer.{layer}."
    return (
        Site(f"{layer}.attention_in", tuple(f"{at}attention.self.{part}" for part in ("query", "key", "value"))),
        Site(f"{layer}.attention_out", (f"{at}attention.output.dense",)),
        Site(f"{layer}.feed_in", (f"{at}intermediate.dense",)),
        Site(f"{layer}.feed_hidden", (f"{at}output.dense",)),
    )


def all_sites() -> list[Site]:
    """Every site of the encoder, first layer first."""
    return [site for layer in range(LAYERS) for site in sites(layer)]


def linear(weights: Mapping[str, Floats], layer: str) -> tuple[Floats, Floats]:
    """Weight (k, n) and bias (n,) of a linear layer of the checkpoint."""
    return weights[f"{layer}.weight"].T, weights[f"{layer}.bias"]


class _Graph:
    """Nodes and constants, collected in order."""

    def __init__(self) -> None:
        from onnx import TensorProto, helper, numpy_helper

        self._helper = helper
        self._from_array = numpy_helper.from_array
        self.types: Any = TensorProto
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def constant(self, name: str, value: NDArray[Any]) -> str:
        if name not in self.constants:
            self.constants[name] = self._from_array(np.ascontiguousarray(value), name)
        return name

    def node(self, kind: str, inputs: list[str], domain: str = "", output: str = "", **attributes: object) -> str:
        output = output or f"{kind}_{len(self.nodes)}"
        made = self._helper.make_node(kind, inputs, [output], f"{kind}_{len(self.nodes)}", domain=domain, **attributes)
        self.nodes.append(made)
        return output

    def model(self, outputs: Mapping[str, int], notes: Mapping[str, str]) -> Any:  # noqa: ANN401 - onnx has no types
        make, types = self._helper, self.types
        graph = make.make_graph(
            self.nodes,
            "encoder",
            [
                make.make_tensor_value_info("input_ids", types.INT64, ["batch", "tokens"]),
                make.make_tensor_value_info("lengths", types.INT32, ["batch"]),
            ],
            [
                make.make_tensor_value_info(name, types.FLOAT, ["batch", "tokens", width])
                for name, width in outputs.items()
            ],
            list(self.constants.values()),
        )
        versions = [make.make_opsetid("", 18), make.make_opsetid(_MICROSOFT, 1)]
        model = make.make_model(graph, opset_imports=versions, ir_version=9, producer_name="pointsman")
        make.set_model_props(model, dict(notes))
        return model


class _Encoder:
    """Writes the encoder; `plan` is None for the float form, which also gives out every site's activations."""

    def __init__(self, weights: Mapping[str, Floats], plan: Mapping[str, Int8Site] | None) -> None:
        self.graph = _Graph()
        self._weights = weights
        self._plan = plan
        self.taps: dict[str, int] = {}

    def write(self) -> None:
        state = self._embeddings()
        for layer in range(LAYERS):
            state = self._layer(layer, state, OUTPUT if layer == LAYERS - 1 else "")

    def _embeddings(self) -> str:
        graph, weights = self.graph, self._weights
        words = weights["embeddings.word_embeddings.weight"]
        if self._plan is None:
            word = graph.node("Gather", [graph.constant("words", words), "input_ids"])
        else:
            steps = np.abs(words).max(axis=1, keepdims=True) / np.float32(127)
            table = graph.constant("words", np.round(words / steps).astype(np.int8))
            rows = graph.node("Cast", [graph.node("Gather", [table, "input_ids"])], to=graph.types.FLOAT)
            word = graph.node("Mul", [rows, graph.node("Gather", [graph.constant("word_steps", steps), "input_ids"])])
        # Every token is of type 0, so its type's vector belongs to the position's.
        places = (
            weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
        )
        end = graph.node("Shape", ["input_ids"], start=1, end=2)
        zero, one = graph.constant("zero", np.array([0], np.int64)), graph.constant("one", np.array([1], np.int64))
        place = graph.node("Slice", [graph.constant("places", places[None]), zero, end, one])
        return self._normalised(word, place, "embeddings.LayerNorm")

    def _layer(self, layer: int, state: str, output: str) -> str:
        graph, at = self.graph, f"encoder.layer.{layer}."
        into, out_of, feed_in, feed_hidden = sites(layer)
        entered = self._enter(into, state)
        # Attention is linear in its values, so what it gives out can be scaled to steps by scaling the values.
        steps = None if self._plan is None else self._plan[out_of.name].inverse_step
        query, key = self._linear(into, 0, entered), self._linear(into, 1, entered)
        value = self._linear(into, 2, entered, steps)
        attended = graph.node("MultiHeadAttention", [query, key, value, "", "lengths"], _MICROSOFT, num_heads=HEADS)
        attended = self._linear(out_of, 0, self._enter(out_of, attended, scaled=True))
        state = self._normalised(attended, state, f"{at}attention.output.LayerNorm")
        hidden = self._linear(feed_in, 0, self._enter(feed_in, state))
        hidden = graph.node("Gelu", [hidden], _MICROSOFT)
        hidden = self._linear(feed_hidden, 0, self._enter(feed_hidden, hidden))
        return self._normalised(hidden, state, f"{at}output.LayerNorm", output)

    def _normalised(self, left: str, right: str, layer: str, output: str = "") -> str:
        graph, weights = self.graph, self._weights
        gain = graph.constant(f"{layer}.weight", weights[f"{layer}.weight"])
        shift = graph.constant(f"{layer}.bias", weights[f"{layer}.bias"])
        total = graph.node("Add", [left, right])
        return graph.node("LayerNormalization", [total, gain, shift], output=output, axis=-1, epsilon=_EPSILON)

    def _enter(self, site: Site, state: str, *, scaled: bool = False) -> str:
        """Quantise activations as they enter a site's layers; `scaled` ones are in steps already."""
        if self._plan is None:
            self.taps[state] = linear(self._weights, site.layers[0])[0].shape[0]
            return state
        graph, plan = self.graph, self._plan[site.name]
        if not scaled:
            state = graph.node("Mul", [state, graph.constant(f"{site.name}.inverse_step", plan.inverse_step)])
        unit = graph.constant("unit", np.array(1, np.float32))
        zero_point = graph.constant(f"zero_point_{plan.zero_point}", np.array(plan.zero_point, np.uint8))
        return graph.node("QuantizeLinear", [state, unit, zero_point])

    def _linear(self, site: Site, place: int, state: str, output_scale: Floats | None = None) -> str:
        graph, name = self.graph, site.layers[place]
        if self._plan is None:
            weight, bias = linear(self._weights, name)
            product = graph.node("MatMul", [state, graph.constant(f"{name}.weight", weight)])
            return graph.node("Add", [product, graph.constant(f"{name}.bias", bias)])
        layer = self._plan[site.name].layers[place]
        scale, bias = layer.scale, layer.bias
        if output_scale is not None:
            scale, bias = scale * output_scale, bias * output_scale
        inputs = [
            state,
            graph.constant(f"{name}.weight", layer.weight),
            graph.constant("unit", np.array(1, np.float32)),
            graph.constant(f"{name}.scale", scale),
            "",
            "",
            graph.constant(f"{name}.bias", bias),
        ]
        return graph.node("MatMulIntegerToFloat", inputs, _MICROSOFT)


def float_model(weights: Mapping[str, Floats]) -> tuple[Any, dict[str, str]]:
    """The encoder in fp32 (an onnx.ModelProto), and for each site the name of the output that holds its activations."""
    encoder = _Encoder(weights, None)
    encoder.write()
    names = dict(zip((site.name for site in all_sites()), encoder.taps, strict=True))
    return encoder.graph.model({OUTPUT: HIDDEN, **encoder.taps}, {}), names


def int8_model(weights: Mapping[str, Floats], plan: Mapping[str, Int8Site], notes: Mapping[str, str]) -> Any:  # noqa: ANN401
    """The encoder with int8 linear layers and word table (an onnx.ModelProto); `notes` become its metadata."""
    encoder = _Encoder(weights, plan)
    encoder.write()
    return encoder.graph.model({OUTPUT: HIDDEN}, notes)
