"""From a finished run to what may be served of it: one artifact folder, or the reasons why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from auditlib.audits.device import NAMES_OF_DTYPES
from auditlib.audits.parity_probes import SINGLE
from auditlib.audits.subject import Loading, load_decoder
from auditlib.decoders.protocol import Decoder
from auditlib.decoders.revision import Revision
from auditlib.decoding.policies import Policy, parse_policy
from auditlib.errors import ArtifactError, RunError
from auditlib.files import sha256_of
from auditlib.progress import Progress, silent
from auditlib.release.subjects import held_against
from auditlib.runs.folder import Run, open_run
from auditlib.runs.origins import revision_of
from auditlib.serving.artifact import Artifact, open_artifact
from auditlib.serving.artifact_document import FALLBACK_FULL_PREFIX, Blocked
from auditlib.serving.packing import Offer, Packing, offer, pack
from auditlib.serving.plan import ServingPlan, serving_plan
from auditlib.serving.served import Bounds, Strategy


@dataclass(frozen=True, slots=True)
class PackageRequest:
    """What to package. What is None is taken from the run: its revision where it lay, its policy's plan."""

    run: Path
    out: Path
    revision: Path | None = None
    setting: str | None = None
    strategy: Strategy | None = None
    fallback: Path | None = None
    allow_code: bool = False


@dataclass(frozen=True, slots=True)
class Packaged:
    """The artifact, None where packaging was refused; what is served of what was asked; and why not all of it."""

    artifact: Artifact | None
    offer: Offer
    blocked: Blocked

    @property
    def as_asked(self) -> bool:
        """Whether there is an artifact that serves exactly what was asked for."""
        return self.artifact is not None and self.offer.as_asked

    @property
    def reasons(self) -> tuple[str, ...]:
        """What the run blocks of what was asked for, in its own words."""
        if self.as_asked:
            return ()
        cache = self.blocked.cache_acceleration if self.offer.asked_strategy != self.offer.strategy else ()
        setting = self.blocked.decoding[self.offer.asked.name] if self.offer.asked != self.offer.setting else ()
        return tuple(dict.fromkeys((*setting, *cache)))


def package_run(request: PackageRequest, progress: Progress = silent) -> Packaged:
    """Package what a run allows of its revision.

    Nothing is written where every setting is blocked and no fallback artifact is given. InputError or IntegrityError
    for a run, revision or fallback that is damaged or does not fit.
    """
    if request.out.exists():
        raise ArtifactError(f"{request.out}: is there already; choose another --out")
    run = open_run(request.run)
    run.verify()
    content = (run.folder / "policy.json").read_bytes()
    policy = parse_policy(content, str(run.folder / "policy.json"))
    plan = _plan(request, policy)
    blocked = _blocked(run, policy)
    offered = offer(policy, plan, blocked)
    revision = revision_of(run, request.revision)
    fallback = _fallback(request, policy, revision)
    if offered.setting is None and fallback is None:
        return Packaged(None, offered, blocked)
    decoder = None if offered.setting is None else _decoder(run, revision, allow_code=request.allow_code)
    packing = Packing(
        revision, policy, content, offered, _bounds(plan, policy, decoder, fallback), blocked, _facts(run, revision),
        held_against(run.report), run.manifest["device"], FALLBACK_FULL_PREFIX if fallback is None else fallback.digest,
        _seen(run),
    )  # fmt: skip
    return Packaged(pack(request.out, packing, decoder, progress), offered, blocked)


def _plan(request: PackageRequest, policy: Policy) -> ServingPlan:
    plan = serving_plan(policy, str(request.run / "policy.json"))
    return replace(plan, setting=request.setting or plan.setting, strategy=request.strategy or plan.strategy)


def _blocked(run: Run, policy: Policy) -> Blocked:
    """Why the run does not allow cache acceleration and each proposed setting: it allows only what it says it does."""
    try:
        decision = run.report["decision"]
        because, decoding = decision["because"], decision["decoding"]
        cache = _reasons(decision["cache_acceleration"], because["cache_acceleration"])
        # The report keeps the order of the policy as it was given; the run's copy of the policy has its names sorted.
        reasons = {name: _reasons(decoding[name], because["decoding"][name]) for name in decision["proposed"]}
    except (KeyError, TypeError, AttributeError) as problem:
        raise RunError(f"{run.folder}: its report holds no decision that can be read; audit again") from problem
    if set(reasons) != {setting.name for setting in policy.settings}:
        raise RunError(f"{run.folder}: its report decides on other settings than its policy proposes; audit again")
    return Blocked(cache, reasons)


def _reasons(decided: object, because: list[object]) -> tuple[str, ...]:
    reasons = tuple(map(str, because))
    return reasons if decided == "allowed" else reasons or ("the run does not allow it",)


def _fallback(request: PackageRequest, policy: Policy, revision: Revision) -> Artifact | None:
    """The artifact that answers when this one fails; ArtifactError when it could not, or the policy wants another."""
    if request.fallback is None:
        if policy.fallback != FALLBACK_FULL_PREFIX:
            raise ArtifactError(
                f"the run's policy falls back to revision {policy.fallback!r}; give an artifact of it with --fallback"
            )
        return None
    fallback = open_artifact(request.fallback)
    if policy.fallback not in (FALLBACK_FULL_PREFIX, fallback.revision.manifest.name, fallback.revision.digest):
        raise ArtifactError(
            f"{request.fallback}: holds revision {fallback.revision.manifest.name!r}, but the run's policy falls back "
            f"to {policy.fallback!r}"
        )
    if not fallback.serves:
        raise ArtifactError(f"{request.fallback}: serves nothing itself; give an artifact that does")
    lacking = sorted(set(revision.event_map.events) - set(fallback.revision.event_map.events))
    if lacking and fallback.revision.event_map.unknown is None:
        raise ArtifactError(f"{request.fallback}: its event map lacks {', '.join(lacking)}, so it could not answer")
    return fallback


def _decoder(run: Run, revision: Revision, *, allow_code: bool) -> Decoder:
    """The decoder as it was audited."""
    dtype = NAMES_OF_DTYPES[run.manifest["dtype"]]
    return load_decoder(revision, Loading(str(run.manifest["device"]["device"]), dtype, allow_code))


def _bounds(plan: ServingPlan, policy: Policy, decoder: Decoder | None, fallback: Artifact | None) -> Bounds:
    """What requests may ask for; a fallback that takes less could not answer all of them."""
    if decoder is None:  # nothing but the fallback serves, within its own bounds
        context = 1 + (fallback.bounds.max_prefix_events if fallback else 1)
        return replace(plan, max_prefix_events=None).bounds(context, policy.max_new_events)
    bounds = plan.bounds(decoder.context_length, policy.max_new_events)
    for name in ("max_prefix_events", "max_new_events"):
        asked, taken = getattr(bounds, name), getattr(fallback.bounds if fallback else bounds, name)
        if taken < asked:
            raise ArtifactError(
                f"{name} is {asked}, but the fallback takes {taken}: it could not answer; lower it in the policy's "
                "serving part, or give another fallback"
            )
    return bounds


def _facts(run: Run, revision: Revision) -> dict[str, Any]:
    """What only the run knows of an artifact's document."""
    manifest = run.manifest
    return {
        "name": revision.manifest.name,
        "run": run.id,
        "report": sha256_of(run.folder / "report.json"),
        "policy": manifest["policy"]["digest"],
        "snapshot": manifest["snapshot"]["digest"],
        "code": manifest["code"],
        "dtype": manifest["dtype"],
    }


def _seen(run: Run) -> Mapping[tuple[int, ...], int]:
    """Held-out prefixes that the run compared, with how many sessions begin so; none where parity was not measured."""
    table = run.table("cache parity", "gaps")
    if table.empty:
        return {}
    # Rows that probes made up have no weight: no session begins so.
    own = table[(table["probe"] == SINGLE) & (table["weight"] > 0)]
    rows = zip(own["events"].tolist(), own["weight"].tolist(), strict=True)
    return {tuple(map(int, str(events).split("-"))): int(weight) for events, weight in rows}
