"""Packs a revision that a run has judged into an artifact; what the run blocks is off in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.guarded_folder import read_file
from auditlib.decoders.protocol import Decoder
from auditlib.decoders.revision import MANIFEST, Revision
from auditlib.decoders.rows import Row, padded
from auditlib.decoding.loop import generate
from auditlib.decoding.policies import Policy, Setting
from auditlib.errors import ArtifactError, IntegrityError
from auditlib.files import whole_folder
from auditlib.progress import Progress, silent
from auditlib.serving.artifact import DOCUMENT, POLICY, REVISION, Artifact, open_artifact
from auditlib.serving.artifact_document import FULL_PREFIX, Blocked, document_bytes
from auditlib.serving.fixed_batch import FixedBatch, SavedAnswer
from auditlib.serving.plan import ServingPlan
from auditlib.serving.replay_prefixes import choose_prefixes
from auditlib.serving.served import Bounds, Strategy


@dataclass(frozen=True, slots=True)
class Offer:
    """What is asked to be served, and what of it is: nothing (None) where every setting is blocked."""

    asked: Setting
    asked_strategy: Strategy
    setting: Setting | None
    strategy: Strategy | None

    @property
    def as_asked(self) -> bool:
        """Whether exactly what was asked for is served."""
        return (self.setting, self.strategy) == (self.asked, self.asked_strategy)


@dataclass(frozen=True, slots=True)
class Packing:
    """What goes into an artifact.

    `policy` are the bytes of the policy's document. `facts` are the members of `artifact.json` that only the run knows
    (name, run, report, policy, snapshot, code, dtype) and `device` the fingerprint that `tolerance` (logits) belongs
    to. `seen` maps held-out prefixes to how many sessions begin so.
    """

    revision: Revision
    policy: Policy
    policy_bytes: bytes
    offer: Offer
    bounds: Bounds
    blocked: Blocked
    facts: Mapping[str, Any]
    tolerance: float | None
    device: Mapping[str, Any]
    fallback: str
    seen: Mapping[Row, int]


def offer(policy: Policy, plan: ServingPlan, blocked: Blocked) -> Offer:
    """What is served of what `plan` asks for: another setting where its own is blocked, no cache where caches are.

    Settings come in the order of `blocked`, which names them all: the first is asked for where `plan` names none, and
    the first allowed one takes the place of a blocked one. ArtifactError for a setting that the policy lacks.
    """
    by_name = {setting.name: setting for setting in policy.settings}
    asked = by_name.get(plan.setting or next(iter(blocked.decoding)))
    if asked is None:
        raise ArtifactError(
            f"the setting {plan.setting!r} is not proposed by the run's policy; choose one of {', '.join(by_name)}"
        )
    allowed = [by_name[name] for name in (asked.name, *blocked.decoding) if not blocked.decoding[name]]
    if not allowed:
        return Offer(asked, plan.strategy, None, None)
    return Offer(asked, plan.strategy, allowed[0], FULL_PREFIX if blocked.cache_acceleration else plan.strategy)


def pack(folder: Path, packing: Packing, decoder: Decoder | None, progress: Progress = silent) -> Artifact:
    """The artifact, written to `folder` and opened again; it appears only when whole.

    The same packing gives the same bytes. `decoder` (in the dtype of the run) is not asked for where nothing is served.
    ArtifactError when `folder` is there already, IntegrityError when the revision changes while it is copied.
    """
    contents = {POLICY: packing.policy_bytes, **_revision_files(packing.revision)}
    if packing.offer.setting is not None:
        if decoder is None:
            raise ArtifactError("what is served needs its decoder, to answer the fixed batch")
        contents |= _fixed_batch(decoder, packing, packing.offer.setting, progress).files(packing.offer.setting.name)
    contents[DOCUMENT] = document_bytes(_document(packing, contents))
    try:
        with whole_folder(folder) as aside:
            (aside / REVISION).mkdir()
            for name, content in contents.items():
                (aside / name).write_bytes(content)
    except OSError as problem:
        why = "is there already; choose another --out" if isinstance(problem, FileExistsError) else problem.strerror
        raise ArtifactError(f"{folder}: {why}") from problem
    # Read back as a stranger would: what this writes and cannot open is no artifact.
    return open_artifact(folder, _digest(contents[DOCUMENT]))


def _document(packing: Packing, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """All of `artifact.json`; neither a time nor a path is in it, so that the same run packs to the same bytes."""
    revision, offered = packing.revision, packing.offer
    ids, order = revision.event_map, revision.event_order
    return {
        **packing.facts,
        "format": 1,
        "revision": {"name": revision.manifest.name, "digest": revision.digest},
        "event_map": {"version": ids.version, "digest": ids.digest},
        "event_order": {"version": order.version, "digest": order.digest},
        "strategy": {"asked": offered.asked_strategy, "served": offered.strategy},
        "decoding": {
            "asked": offered.asked.name,
            "served": None if offered.setting is None else offered.setting.name,
            "settings": {setting.name: setting.to_json() for setting in packing.policy.settings},
        },
        "stopping": {"max_new_events": packing.bounds.max_new_events, "stop_on": "end"},
        "bounds": packing.bounds.to_json(),
        "tolerance": {"value": packing.tolerance, "unit": "logit", "device": dict(packing.device)},
        "blocked": packing.blocked.to_json(),
        "serves": offered.setting is not None,
        "fallback": packing.fallback,
        "files": {name: _digest(content) for name, content in contents.items()},
    }


def _revision_files(revision: Revision) -> dict[str, bytes]:
    """Every file of the revision by its path in the artifact, as it lies there, each checked once more."""
    manifest = read_file(revision.folder, MANIFEST)
    # Read anew from disk: what was opened is in memory, and what is packed has to be the same.
    if _digest(manifest) != revision.digest:
        raise IntegrityError(f"{revision.folder / MANIFEST} was changed while it was packaged; package again")
    files = {name: revision.read(name) for name in revision.manifest.files}
    return {f"{REVISION}/{name}": content for name, content in {**files, MANIFEST: manifest}.items()}


def _fixed_batch(decoder: Decoder, packing: Packing, setting: Setting, progress: Progress) -> FixedBatch:
    """The prefixes for replay, with logits and answers by the full path, every row alone."""
    order = packing.revision.event_order.compile(packing.revision.event_map)
    chosen = choose_prefixes(packing.seen, order, packing.bounds.max_prefix_events + 1)
    device = str(packing.device.get("device", "cpu"))
    answers, logits = [], []
    for number, one in enumerate(chosen):
        progress(number, len(chosen), "fixed batch")
        logits.append(_logits(decoder, one.row, device))
        found = generate(
            decoder,
            [one.row],
            setting,
            event_map=packing.revision.event_map,
            automata=[order.automaton(one.attributes)],
            max_new=packing.bounds.max_new_events,
            cached=False,
            device=device,
        )[0][0]
        answers.append(SavedAnswer(found.events, found.stop, found.forced, float(found.score)))
    prefixes, attributes, strata = zip(*((one.row, one.attributes, one.stratum) for one in chosen), strict=True)
    return FixedBatch(prefixes, attributes, strata, tuple(answers), torch.stack(logits))


@torch.no_grad()
def _logits(decoder: Decoder, row: Row, device: str) -> Tensor:
    """Logits [V] after a row by the full path, on the CPU."""
    events, valid = padded([row])
    return decoder.full(events.to(device), valid.to(device))[0, -1].cpu()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
