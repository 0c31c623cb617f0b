"""Adapter `onnx`: a network with past and present keys and values, run by ONNX Runtime on the CPU in float32.

The network's inputs: `events` and `positions` int64 [B, K], `visible` bool [B, K, S + K], and for each layer l
`past_keys.l` and `past_values.l` float [B, H, S, D]; its outputs: `logits` float [B, K, V], and `present_keys.l` and
`present_values.l` float [B, H, S + K, D]. Masks and positions come from outside, so padding may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from auditlib.decoders.column_decoder import ShownColumns
from auditlib.decoders.columns import OpenStore, Sight, Store
from auditlib.decoders.fingerprint import fingerprint
from auditlib.decoders.optional import optional
from auditlib.errors import DecoderError, RevisionError
from auditlib.events.documents import Entry

if TYPE_CHECKING:
    from auditlib.decoders.adapters import Source

_LARGEST_MODEL = 2 << 30  # protobuf itself ends there
_SIZES = ("vocabulary_size", "context_length", "layers", "heads", "head_size")
_WARNINGS_AND_WORSE = 3


@dataclass(frozen=True, slots=True)
class OnnxConfig:
    """Shape of the network; `cached_attention_window` has the meaning it has for `event_gpt`."""

    vocabulary_size: int
    context_length: int
    layers: int
    heads: int
    head_size: int
    positions: str = "rotary"
    cached_attention_window: int | None = None

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any], where: str) -> OnnxConfig:
        """Config from JSON; RevisionError names the entry that is missing, unknown or out of range."""
        entries = Entry(dict(config), where, RevisionError, "config").members(
            _SIZES, ("positions", "cached_attention_window")
        )
        given: dict[str, Any] = {name: entries[name].integer(1) for name in _SIZES}
        if "positions" in entries:
            given["positions"] = entries["positions"].text()
        window = entries.get("cached_attention_window")
        if window is not None and window.value is not None:
            given["cached_attention_window"] = window.integer(1)
        return cls(**given)

    def inputs(self) -> dict[str, str]:
        """Type of each input by name."""
        past = (f"past_{kind}.{layer}" for layer in range(self.layers) for kind in ("keys", "values"))
        plain = {"events": "tensor(int64)", "positions": "tensor(int64)", "visible": "tensor(bool)"}
        return plain | dict.fromkeys(past, "tensor(float)")

    def outputs(self) -> dict[str, str]:
        """Type of each output by name."""
        present = (f"present_{kind}.{layer}" for layer in range(self.layers) for kind in ("keys", "values"))
        return dict.fromkeys(["logits", *present], "tensor(float)")


class PastStore(OpenStore):
    """Keys and values of each layer, [B, H, S, D] each."""

    def __init__(self, keys: Iterable[Tensor], values: Iterable[Tensor]) -> None:
        self.keys, self.values = list(keys), list(values)
        self._shared: tuple[Tensor, Tensor] | None = None

    @property
    def columns(self) -> int:
        """Columns in use."""
        return self.keys[0].shape[2]

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values [L, B, H, S, D]; the layers are made to share their memory."""
        if self._shared is None:
            self._shared = torch.stack(self.keys), torch.stack(self.values)
            self.keys, self.values = (list(tensor) for tensor in self._shared)
        return self._shared

    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))


class OnnxDecoder(ShownColumns):
    """Contract 1 over a session of ONNX Runtime, whose weights nobody can change once it is made."""

    def __init__(self, config: OnnxConfig, model: bytes, session: Any) -> None:
        super().__init__(config.vocabulary_size, config.context_length, torch.float32, torch.device("cpu"))
        self.config = config
        self.positions = config.positions
        window = config.cached_attention_window
        self.block_ends: tuple[int, ...] = () if window is None else (window,)
        self._session = session
        self.revision = fingerprint(asdict(config), {"model": torch.frombuffer(bytearray(model), dtype=torch.uint8)})

    def fingerprint(self) -> str:
        """`sha256:<hex>` over config and network."""
        return self.revision

    def _whole(self, events: Tensor, sight: Sight) -> Tensor:
        past = self._none(len(events))
        return self._run(["logits"], events, sight, sight.visible(), past)[0]

    def _append(self, events: Tensor, sight: Sight, store: Store) -> tuple[Tensor, Store]:
        if not isinstance(store, PastStore):
            raise DecoderError(f"a {type(store).__name__} is no store of this adapter")
        visible = sight.visible(self.config.cached_attention_window)
        logits, *present = self._run(list(self.config.outputs()), events, sight, visible, store)
        return logits, PastStore(present[::2], present[1::2])

    def _empty(self, rows: int, room: int) -> Store:
        del room  # the runtime makes new tensors at every call
        return self._none(rows)

    def _store_of(self, keys: Tensor, values: Tensor, room: int) -> OpenStore:
        del room
        return PastStore(keys.clone(), values.clone())

    def _none(self, rows: int) -> PastStore:
        nothing = torch.zeros(self.config.layers, rows, self.config.heads, 0, self.config.head_size)
        return PastStore(nothing, nothing)

    def _run(self, wanted: list[str], events: Tensor, sight: Sight, visible: Tensor, past: PastStore) -> list[Tensor]:
        given = {"events": events, "positions": sight.positions(), "visible": visible}
        for layer, (keys, values) in enumerate(zip(past.keys, past.values, strict=True)):
            given |= {f"past_keys.{layer}": keys, f"past_values.{layer}": values}
        return _computed(self._session, wanted, given)


def load_onnx(source: Source) -> OnnxDecoder:
    """The decoder of `model.onnx`; DecoderError for a dtype or device that it has no path for."""
    if source.dtype != torch.float32:
        raise DecoderError(f"onnx has no {source.dtype} path here, only torch.float32")
    if torch.device(source.device).type != "cpu":
        raise DecoderError(f"onnx runs on the CPU here, not on {source.device}; leave --device out")
    config = OnnxConfig.from_mapping(source.config, str(source.folder / "revision.json"))
    where = str(source.folder / "model.onnx")
    model = source.read("model.onnx", _LARGEST_MODEL)
    check_model(model, where)
    session = _session(model, where)
    _require("inputs", {one.name: one.type for one in session.get_inputs()}, config.inputs(), where)
    _require("outputs", {one.name: one.type for one in session.get_outputs()}, config.outputs(), where)
    _require_shapes(config, session, where)
    return OnnxDecoder(config, model, session)


def check_model(model: bytes, where: str) -> None:
    """Raise RevisionError for a network that reads other files, holds numbers that are not finite, or is none."""
    onnx = optional("onnx", "onnx")
    try:
        proto = onnx.load_model_from_string(model)
    except Exception as problem:
        raise RevisionError(f"{where}: is no ONNX network ({type(problem).__name__})") from problem
    for tensor in _tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise RevisionError(f"{where}: tensor {tensor.name!a} lies in another file; save the network in one file")
        try:
            array = torch.from_numpy(onnx.numpy_helper.to_array(tensor).astype("float64", copy=True))
        except (ValueError, TypeError) as problem:  # strings and damaged tensors
            raise RevisionError(f"{where}: tensor {tensor.name!a} cannot be read ({problem})") from problem
        if not bool(torch.isfinite(array).all()):
            raise RevisionError(f"{where}: tensor {tensor.name!a} holds numbers that are not finite")


def _tensors(message: Any) -> Iterator[Any]:
    """Every tensor inside a protobuf message, however deep: subgraphs, functions and attributes included."""
    if type(message).__name__ == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _tensors(part)


def _session(model: bytes, where: str) -> Any:
    """A session with as many threads as torch has, so that a measurement says what it ran on."""
    runtime = optional("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.log_severity_level = _WARNINGS_AND_WORSE
    options.use_deterministic_compute = True
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as problem:
        reason = (str(problem).splitlines() or [""])[0][:200]
        raise RevisionError(f"{where}: ONNX Runtime refuses it ({reason}); export it anew") from problem


def _computed(session: Any, wanted: list[str], given: Mapping[str, Tensor]) -> list[Tensor]:
    """The wanted outputs; DecoderError with the runtime's own reason where it cannot compute them."""
    arrays = {name: tensor.contiguous().numpy() for name, tensor in given.items()}
    try:
        return [torch.from_numpy(array) for array in session.run(wanted, arrays)]
    except Exception as problem:
        reason = (str(problem).splitlines() or [""])[0][:200]
        raise DecoderError(f"onnx: ONNX Runtime cannot run the network ({reason}); export it anew") from problem


def _require_shapes(config: OnnxConfig, session: Any, where: str) -> None:
    """Run the first and the last event at the first and the last place: RevisionError where `config` says otherwise.

    The sizes that a network declares prove nothing, and a row as long as the context would cost its square.
    """
    held = torch.zeros(1, config.heads, 1, config.head_size)
    events, positions = torch.tensor([[0, config.vocabulary_size - 1]]), torch.tensor([[0, config.context_length - 1]])
    given = {"events": events, "positions": positions, "visible": torch.ones(1, 2, 3, dtype=torch.bool)}
    given |= {name: held for name in config.inputs() if name not in given}
    names = list(config.outputs())
    try:
        found = [tuple(tensor.shape) for tensor in _computed(session, names, given)]
    except DecoderError as problem:
        raise RevisionError(f"{where}: does not run at the sizes of its config: {problem}") from problem
    present = (1, config.heads, 3, config.head_size)
    for name, shape in zip(names, found, strict=True):
        wanted = (1, 2, config.vocabulary_size) if name == "logits" else present
        if shape != wanted:
            raise RevisionError(f"{where}: {name} is {list(shape)} where its config calls for {list(wanted)}")


def _require(what: str, found: Mapping[str, str], wanted: Mapping[str, str], where: str) -> None:
    if found != wanted:
        missing, extra = sorted(wanted.items() - found.items()), sorted(found.items() - wanted.items())
        raise RevisionError(f"{where}: {what} lack {missing[:4]} and have {extra[:4]}; export it with export-onnx")
