"""Where the two wings meet: a snapshot of sessions and a decoder become the subject of an audit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from auditlib.audits.base import Subject
from auditlib.decoders.protocol import Decoder
from auditlib.decoders.revision import Revision
from auditlib.decoding.policies import Policy
from auditlib.errors import DecoderError, EventMapError, PrefixgateError, RevisionError
from auditlib.progress import Progress, silent
from auditlib.sessions.session import Session
from auditlib.sessions.snapshot import Snapshot
from auditlib.sessions.split import leakage
from auditlib.sessions.store import SessionStore

_RECORD = "training.json"


@dataclass(frozen=True, slots=True)
class Loading:
    """How a revision's decoder is to be loaded."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    allow_code: bool = False


def load_decoder(revision: Revision, loading: Loading, dtype: torch.dtype | None = None) -> Decoder:
    """Decoder of `revision`; DecoderError when its adapter or its own code fails.

    Errors raised on purpose pass through: they already say what, where and what now.
    """
    wanted = loading.dtype if dtype is None else dtype
    try:
        return revision.decoder(device=loading.device, dtype=wanted, allow_code=loading.allow_code)
    except PrefixgateError:
        raise
    except (Exception, SystemExit) as problem:  # the code of a stranger's adapter may raise anything, or try to leave
        raise DecoderError(f"{revision.folder}: the adapter raised {type(problem).__name__}: {problem}") from problem


def build_subject(
    store: SessionStore,
    snapshot: Snapshot,
    revision: Revision,
    policy: Policy,
    loading: Loading,
    *,
    seed: int = 0,
    progress: Progress = silent,
) -> Subject:
    """Subject of the audits; raises DecoderError or EventMapError when revision and sessions do not fit each other."""
    decoder = load_decoder(revision, loading)
    _require_contract(decoder, revision)
    held_out = tuple(store.sessions(snapshot, "held-out"))
    record = _training_record(revision)
    subject = Subject(
        name=revision.manifest.name,
        revision=revision.digest,
        decoder=decoder,
        load=lambda dtype: load_decoder(revision, loading, dtype),
        event_map=revision.event_map,
        order=revision.event_order.compile(revision.event_map),
        held_out=held_out,
        leakage=leakage(store, snapshot),
        settings=policy.settings,
        max_new_events=policy.max_new_events,
        dtype=loading.dtype,
        device=loading.device,
        seed=seed,
        training_record=record,
        trained_on=_trained_on(store, record, held_out),
        progress=progress,
    )
    _refuse_misfits(subject)
    return subject


def _require_contract(decoder: Decoder, revision: Revision) -> None:
    """Raise DecoderError, with all that is missing, unless the decoder has what contract 1 asks for."""
    numbers = {name: getattr(decoder, name, None) for name in ("vocabulary_size", "context_length")}
    wrong = [f"{name} is {value!r}, no whole number above 0" for name, value in numbers.items()
             if type(value) is not int or value < 1]  # fmt: skip
    verbs = ("full", "prefill", "extend", "reorder", "cache_bytes")
    wrong += [f"{verb} cannot be called" for verb in verbs if not callable(getattr(decoder, verb, None))]
    if not isinstance(getattr(decoder, "revision", None), str):
        wrong.append("revision is no text")
    if wrong:
        raise DecoderError(f"{revision.folder}: the decoder does not keep contract 1: {'; '.join(wrong)}")


def _refuse_misfits(subject: Subject) -> None:
    """Raise when the decoder cannot hold the event map or the longest held-out session."""
    subject.event_map.check_size(subject.decoder.vocabulary_size)
    names = {name for session in subject.held_out for name in session.events}
    subject.event_map.encode(sorted(names))
    if not subject.held_out:
        raise EventMapError("the snapshot holds no held-out session; split with a larger --held-out")
    longest = max(subject.held_out, key=lambda session: len(session.events))
    needed = len(longest.events) + 1  # with the start token; the end is predicted, never read
    if needed > subject.decoder.context_length:
        raise DecoderError(
            f"the context length of {subject.decoder.context_length} events is shorter than held-out session "
            f"{longest.session_id!r} needs ({needed} with the start token); audit a revision with a longer context"
        )


def _trained_on(store: SessionStore, record: Mapping[str, object] | None, held_out: Sequence[Session]) -> int | None:
    """How many of these sessions the recorded training has seen: a sound split says nothing of another one."""
    origins = [one for one in store.snapshots() if record is not None and one.digest == record.get("snapshot")]
    if not origins:
        return None
    seen = {session.session_id for session in store.sessions(origins[0], "training")}
    return sum(session.session_id in seen for session in held_out)


def _training_record(revision: Revision) -> dict[str, object] | None:
    """What the revision says of its own training, when it says anything; RevisionError when nobody can read it."""
    if _RECORD not in revision.manifest.files:
        return None
    try:
        record = json.loads(revision.read(_RECORD))
    except (ValueError, RecursionError) as problem:
        # Passed over, it would hide that the decoder was trained on what is held out here.
        raise RevisionError(
            f"{revision.folder / _RECORD} is no JSON ({problem}); write it anew or leave it out of the revision"
        ) from problem
    return record if isinstance(record, dict) else None
