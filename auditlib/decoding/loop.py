"""Every prefix through the generation loop, in batches of prefixes of like length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from auditlib.decoders.protocol import Decoder
from auditlib.decoding.generated import Generated
from auditlib.decoding.generation import Generation
from auditlib.decoding.paths import CachedPath, FullPath
from auditlib.decoding.policies import Setting
from auditlib.errors import ContextExceededError, DecoderError, PolicyError
from auditlib.events.automaton import OrderAutomaton
from auditlib.events.event_map import EventMap
from auditlib.progress import Progress, silent

_PADDING = 32  # padding that costs less than another batch


def generate(
    decoder: Decoder,
    prefixes: Sequence[Sequence[int]],
    setting: Setting,
    *,
    event_map: EventMap,
    automata: Sequence[OrderAutomaton],
    max_new: int,
    cached: bool = True,
    batch: int = 64,
    device: str = "cpu",
    progress: Progress = silent,
) -> list[list[Generated]]:
    """Hypotheses of each prefix (ids, start included): beams best first, samples by number, one when greedy.

    Prefix and new events, the end counted, stay within the context; prefix i follows `automata[i]` where the setting
    has the order mask. ContextExceededError for a prefix beyond the context, DecoderError for an empty one or for
    logits that are no numbers, EventMapError when the map does not fit the decoder.
    """
    _refuse(decoder, prefixes, automata, max_new, batch)
    results: list[list[Generated]] = [[] for _ in prefixes]
    done = 0
    for chosen in _batches([len(prefix) for prefix in prefixes], batch):
        progress(done, len(prefixes), setting.name)
        done += len(chosen)
        path = (CachedPath if cached else FullPath)(decoder, event_map.padding, device)
        generation = Generation(decoder, setting, event_map, path)
        rows = [tuple(prefixes[row]) for row in chosen]
        owners = generation.join(rows, [automata[row] for row in chosen], [max_new] * len(rows))
        row_of = dict(zip(owners, chosen, strict=True))
        while generation.busy:
            for owner, found in generation.step().items():
                results[row_of[owner]] = found
    return results


def _batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places of rows in batches of at most `most`, shortest rows first; no row is padded to much more than double."""
    chosen: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: lengths[row]):
        if chosen and (len(chosen) == most or lengths[row] > 2 * lengths[chosen[0]] + _PADDING):
            yield chosen
            chosen = []
        chosen.append(row)
    if chosen:
        yield chosen


def _refuse(
    decoder: Decoder, prefixes: Sequence[Sequence[int]], automata: Sequence[OrderAutomaton], max_new: int, batch: int
) -> None:
    if max_new < 1 or batch < 1:
        raise PolicyError(f"max_new is {max_new} and batch {batch}; both must be 1 or more")
    if len(automata) != len(prefixes):
        raise PolicyError(f"{len(prefixes)} prefixes came with {len(automata)} automata; give one for each prefix")
    for number, prefix in enumerate(prefixes):
        if not len(prefix):
            raise DecoderError(f"prefix {number} is empty; a prefix holds at least the start token")
        if len(prefix) > decoder.context_length:
            raise ContextExceededError(
                f"prefix {number} has {len(prefix)} events, the context holds {decoder.context_length}; shorten it"
            )
