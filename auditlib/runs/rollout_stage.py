"""Where a signed rollout stands, as what a service does about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from auditlib.errors import InputError
from auditlib.release.rollout_chain import Chain, read_chain
from auditlib.release.rollout_plan import RELEASED, SHADOW
from auditlib.release.trust import load_trust
from auditlib.serving.arms import Stage
from auditlib.serving.artifact import open_artifact


def stage_of(chain: Chain) -> Stage:
    """Which requests the new arm answers now. None of them before the first stage, while paused, or rolled back."""
    standing = chain.standing
    shares = {stage.name: stage.share for stage in chain.plan.stages} | {RELEASED: 1.0}
    if standing.paused or standing.state not in shares:
        return Stage("paused" if standing.paused else standing.state, 0.0)
    if standing.state == SHADOW:
        return Stage(SHADOW, 0.0, shadow=True)
    return Stage(standing.state, shares[standing.state])


def watched_stage(chain: Path, trust: Path, artifact: Path) -> Callable[[], Stage]:
    """A look at a rollout's stage: the chain is verified whole again whenever it, its head or the trust file changed.

    InputError unless the rollout is about the artifact in that folder and about the fallback that it names. What is
    wrong with the chain or the trust file is raised here and by each look.
    """
    begun = read_chain(chain, load_trust(trust)).standing
    opened = open_artifact(artifact)
    if (begun.artifact, begun.fallback) != (opened.digest, opened.fallback):
        raise InputError(
            f"{chain}: the rollout is about artifact {begun.artifact[:19]}… with fallback {begun.fallback[:19]}…, "
            f"{artifact} is {opened.digest[:19]}… with {opened.fallback[:19]}…; serve what the rollout is about"
        )
    # The trust file too: a key that was revoked since must not go on moving what is served.
    files = (chain, chain.with_name(f"{chain.name}.head"), trust)
    seen: dict[tuple[tuple[int, int, int], ...], Stage] = {}

    def look() -> Stage:
        """The stage now. What is wrong with a chain is never remembered, so that each look raises it."""
        state = tuple((found.st_mtime_ns, found.st_size, found.st_ino) for found in (path.stat() for path in files))
        known = seen.get(state)
        if known is None:
            known = stage_of(read_chain(chain, load_trust(trust)))
            seen.clear()
            seen[state] = known
        return known

    return look
