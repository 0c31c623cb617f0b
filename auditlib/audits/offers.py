"""Which probes beyond contract 1 a decoder can serve. A method's name proves nothing: each offer is tried once."""

from __future__ import annotations

import torch
from torch import Tensor

from auditlib.audits.checked import CheckedDecoder, refusal
from auditlib.audits.held_out import Row
from auditlib.decoders.capabilities import Alterable, Differentiable, Inspectable
from auditlib.errors import DecoderError


def differentiable(checked: CheckedDecoder, row: Row) -> tuple[Differentiable | None, str]:
    """The decoder, when it can be run from embeddings and differentiated by them; else why not."""
    decoder = checked.decoder
    if not isinstance(decoder, Differentiable):
        return None, "the decoder cannot be run from embeddings and differentiated by them"
    events, valid = checked.stack([row])

    def trial() -> None:
        """One pass from embeddings and its gradient; raises whatever stands in the way of either."""
        embeddings = decoder.embed(events).detach().requires_grad_()
        logits = decoder.full_from_embeddings(embeddings, valid)
        _require_shape("full_from_embeddings", logits, (*events.shape, decoder.vocabulary_size))
        torch.autograd.grad(logits.sum(), embeddings)

    problem = refusal(trial)
    return (decoder, "") if problem is None else (None, f"the gradient by embeddings does not come: {problem}")


def alterable(checked: CheckedDecoder, row: Row) -> tuple[Alterable | None, str]:
    """The decoder, when its keys and values can be altered on either path; else why not."""
    decoder = checked.decoder
    if not isinstance(decoder, Alterable):
        return None, "the decoder lets nobody alter its keys and values"
    events, valid = checked.stack([row])

    @torch.no_grad()
    def trial() -> None:
        """Both paths once, with keys and values left as they are; DecoderError for logits of another shape."""
        shape = (*events.shape, decoder.vocabulary_size)
        _require_shape("full_altered", decoder.full_altered(events, valid, lambda _, k, v: (k, v)), shape)
        _, cache = checked.prefill(events[:, :1], valid[:, :1])
        if len(row) > 1:
            logits, _ = decoder.extend_altered(events[:, 1:], valid[:, 1:], cache, lambda _, k, v: (k, v))
            _require_shape("extend_altered", logits, (1, len(row) - 1, decoder.vocabulary_size))

    problem = refusal(trial)
    return (decoder, "") if problem is None else (None, f"altering keys and values does not work: {problem}")


def inspectable(checked: CheckedDecoder, row: Row) -> tuple[Inspectable | None, str]:
    """The decoder, when it shows the keys and values that a cache holds; else why not."""
    decoder = checked.decoder
    if not isinstance(decoder, Inspectable):
        return None, "the decoder does not show its stored keys and values"

    def trial() -> None:
        """One prompt's stored keys and values; DecoderError for shapes other than those of the capability."""
        _, cache = checked.prefill(*checked.stack([row]))
        keys, values, lengths = decoder.stored(cache)
        if keys.dim() != 5 or keys.shape != values.shape or keys.shape[1] != 1 or lengths.shape != (1,):
            raise DecoderError(
                f"stored gave keys {list(keys.shape)}, values {list(values.shape)} and lengths {list(lengths.shape)} "
                "for one row; [layers, 1, H, S, D] twice and [1] are due"
            )

    problem = refusal(trial)
    return (decoder, "") if problem is None else (None, f"stored keys and values cannot be read: {problem}")


def shows_views(checked: CheckedDecoder, shown: Inspectable, row: Row) -> bool:
    """Whether what the decoder shows is the cache itself: writing into a copy would change nothing.

    What is asked for twice and lies in the same memory both times is the cache's own.
    """
    _, cache = checked.prefill(*checked.stack([row]))
    first, again = shown.stored(cache), shown.stored(cache)
    return all(one.data_ptr() == other.data_ptr() for one, other in zip(first[:2], again[:2], strict=True))


def _require_shape(verb: str, logits: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(logits.shape) != shape:
        raise DecoderError(f"{verb} gave logits {list(logits.shape)} where {list(shape)} are due")
