"""An `event_gpt` as an ONNX network with past and present keys and values, in the form that adapter `onnx` runs.

The graph is written node by node rather than traced: the bytes are the same for the same weights, and no branch of the
torch code can be frozen in by the example that a tracer saw. Shapes: B rows, K new, S held, W = H·D channels, V events.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from auditlib.decoders.event_gpt import EventGpt
from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import BlockWeights, Weights
from auditlib.decoders.layers import rotary_table
from auditlib.decoders.onnx import OnnxConfig
from auditlib.decoders.optional import optional
from auditlib.errors import DecoderError

_OPSET, _IR = 20, 10
_EPSILON = 1e-6  # that of decoders.layers
_MOST_BYTES = 2_000_000_000  # protobuf ends at 2 GiB


def onnx_config(config: EventGptConfig) -> OnnxConfig:
    """Config of the network that `onnx_network` makes."""
    return OnnxConfig(
        config.vocabulary_size,
        config.context_length,
        config.layers,
        config.heads,
        config.head_size,
        config.positions,
        config.cached_attention_window,
    )


def onnx_network(decoder: EventGpt) -> bytes:
    """Bytes of the ONNX network with the weights of `decoder` in float32, the same for the same weights.

    DecoderError for weights that do not fit into one file.
    """
    if 4 * sum(tensor.numel() for tensor in decoder.module.state_dict().values()) > _MOST_BYTES:
        raise DecoderError("the weights take more than 2 GB, which one ONNX file cannot hold; export a smaller decoder")
    onnx, config = optional("onnx", "onnx"), onnx_config(decoder.config)
    graph = _Graph(onnx, decoder.config)
    _network(graph, decoder.module.weights())
    elements = {"tensor(int64)": onnx.TensorProto.INT64, "tensor(bool)": onnx.TensorProto.BOOL}

    def declared(names: dict[str, str]) -> list[Any]:
        """Inputs or outputs of the graph with their types and shapes, in the order of the names."""
        info, real = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        return [info(name, elements.get(kind, real), _shape(name, config)) for name, kind in names.items()]

    whole = onnx.helper.make_graph(
        graph.nodes, "event_gpt", declared(config.inputs()), declared(config.outputs()), graph.constants
    )
    opsets = [onnx.helper.make_opsetid("", _OPSET)]
    model = onnx.helper.make_model(whole, opset_imports=opsets, ir_version=_IR, producer_name="prefixgate")
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


class _Graph:
    """Nodes and constants in the order in which they were added."""

    def __init__(self, onnx: Any, config: EventGptConfig) -> None:
        self.config = config
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._onnx = onnx

    def constant(self, value: Tensor | np.ndarray[Any, Any]) -> str:
        """Name of a new constant."""
        array = value.detach().float().cpu().numpy() if isinstance(value, Tensor) else value
        name = f"c{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(array.copy(), name))
        return name

    def number(self, value: float) -> str:
        """Name of a new float32 constant without axes."""
        return self.constant(np.array(value, dtype=np.float32))

    def whole(self, *numbers: int) -> str:
        """Name of a new int64 constant: axes or a shape."""
        return self.constant(np.array(numbers, dtype=np.int64))

    def add(self, kind: str, *inputs: str, named: str = "", **attributes: Any) -> str:
        """Name of the result of a new node."""
        return self.split(kind, *inputs, named=[named or f"n{len(self.nodes)}"], **attributes)[0]

    def split(self, kind: str, *inputs: str, named: list[str], **attributes: Any) -> list[str]:
        """Names of the results of a new node that has several."""
        self.nodes.append(self._onnx.helper.make_node(kind, inputs, named, **attributes))
        return named

    def linear(self, hidden: str, weight: Tensor, bias: Tensor | None = None) -> str:
        """`hidden` [B, K, W] through a weight [out, in]."""
        mixed = self.add("MatMul", hidden, self.constant(weight.T))
        return mixed if bias is None else self.add("Add", mixed, self.constant(bias))

    def reshaped(self, name: str, *shape: int) -> str:
        """`name` in a new shape, in which 0 keeps a size."""
        return self.add("Reshape", name, self.whole(*shape))


def _network(graph: _Graph, weights: Weights) -> None:
    """From events to logits."""
    config = graph.config
    hidden = graph.add("Gather", graph.constant(weights.embed), "events")
    turns: tuple[str, str] | None = None
    if weights.place is None:
        table = rotary_table(config.context_length, config.head_size, torch.device("cpu"), torch.float32)
        turns = (_by_position(graph, table.real), _by_position(graph, table.imag))
    else:
        hidden = graph.add("Add", hidden, graph.add("Gather", graph.constant(weights.place), "positions"))
    visible = graph.add("Unsqueeze", "visible", graph.whole(1))  # [B, 1, K, S + K]
    for layer, block in enumerate(weights.blocks):
        hidden = graph.add("Add", hidden, _attention(graph, block, layer, hidden, turns, visible))
        hidden = graph.add("Add", hidden, _feed(graph, block, hidden))
    graph.add("MatMul", _normalised(graph, hidden, weights.final_norm), graph.constant(weights.head.T), named="logits")


def _by_position(graph: _Graph, table: Tensor) -> str:
    """Rows of a table [C, D/2] by position: [B, K, 1, D/2, 1]."""
    return graph.add("Unsqueeze", graph.add("Gather", graph.constant(table), "positions"), graph.whole(2, 4))


def _attention(
    graph: _Graph, block: BlockWeights, layer: int, hidden: str, turns: tuple[str, str] | None, visible: str
) -> str:
    config = graph.config
    mixed = graph.linear(_normalised(graph, hidden, block.attention_norm), block.queries_keys_values)
    parts = graph.split("Split", mixed, named=[f"{part}.{layer}" for part in "qkv"], axis=-1, num_outputs=3)
    queries, keys, values = (graph.reshaped(part, 0, 0, config.heads, config.head_size) for part in parts)
    if turns is not None:
        queries, keys = (_turned(graph, part, turns) for part in (queries, keys))
    queries, keys, values = (graph.add("Transpose", part, perm=[0, 2, 1, 3]) for part in (queries, keys, values))
    keys = graph.add("Concat", f"past_keys.{layer}", keys, named=f"present_keys.{layer}", axis=2)
    values = graph.add("Concat", f"past_values.{layer}", values, named=f"present_values.{layer}", axis=2)
    scores = graph.add("MatMul", queries, graph.add("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = graph.add("Mul", scores, graph.number(config.head_size**-0.5))
    # Chosen, not added: a huge score under a mask that is merely added would still be heard.
    scores = graph.add("Where", visible, scores, graph.number(torch.finfo(torch.float32).min))
    heard = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), values)
    heard = graph.reshaped(graph.add("Transpose", heard, perm=[0, 2, 1, 3]), 0, 0, config.width)
    return graph.linear(heard, block.attention_out)


def _turned(graph: _Graph, vectors: str, turns: tuple[str, str]) -> str:
    """`vectors` [B, K, H, D] with neighbouring channels turned as pairs, as `layers.rotate` does."""
    config, stem = graph.config, f"t{len(graph.nodes)}"
    cos, sin = turns
    pairs = graph.reshaped(vectors, 0, 0, config.heads, config.head_size // 2, 2)
    one, other = graph.split("Split", pairs, named=[f"{stem}.0", f"{stem}.1"], axis=-1, num_outputs=2)
    real = graph.add("Sub", graph.add("Mul", one, cos), graph.add("Mul", other, sin))
    imaginary = graph.add("Add", graph.add("Mul", one, sin), graph.add("Mul", other, cos))
    return graph.reshaped(graph.add("Concat", real, imaginary, axis=-1), 0, 0, config.heads, config.head_size)


def _feed(graph: _Graph, block: BlockWeights, hidden: str) -> str:
    inner = graph.linear(_normalised(graph, hidden, block.feed_norm), block.feed_in, block.feed_in_bias)
    return graph.linear(graph.add("Gelu", inner, approximate="tanh"), block.feed_out, block.feed_out_bias)


def _normalised(graph: _Graph, hidden: str, gain: Tensor) -> str:
    if graph.config.normalisation == "layer":
        return graph.add("LayerNormalization", hidden, graph.constant(gain), axis=-1, epsilon=_EPSILON)
    mean = graph.add("ReduceMean", graph.add("Mul", hidden, hidden), graph.whole(-1))
    size = graph.add("Sqrt", graph.add("Add", mean, graph.number(_EPSILON)))
    return graph.add("Mul", graph.add("Div", hidden, size), graph.constant(gain))


def _shape(name: str, config: OnnxConfig) -> list[str | int]:
    """Shape of an input or output; a name stands for a size that is free."""
    if name in {"events", "positions"}:
        return ["rows", "new"]
    if name == "visible":
        return ["rows", "new", "seen"]
    if name == "logits":
        return ["rows", "new", config.vocabulary_size]
    return ["rows", config.heads, "held" if name.startswith("past") else "seen", config.head_size]
