"""Whether what is served is what the verdict names: after a release, and as often as somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from auditlib.errors import InputError
from auditlib.release.documents import read_object
from auditlib.release.moments import stamp
from auditlib.release.rollout_chain import Chain
from auditlib.release.rollout_plan import RELEASED
from auditlib.release.rollout_rows import NEW, LiveRows

_SECOND = 1_000_000


def what_is_wrong(
    chain: Chain, rows: LiveRows, health: Mapping[str, Any] | None = None, now: datetime | None = None
) -> Iterator[str]:
    """Everything about the rows since the release that is not as the chain says; nothing when all is well.

    `rows` are those of the live log, `health` what the service says of itself.
    """
    moment = int((now or datetime.now(UTC)).timestamp() * _SECOND)
    if chain.standing.state != RELEASED:
        yield f"the rollout is at {chain.standing.state}, it was not released"
        return
    released = chain.standing.entered[RELEASED]
    # Servers hear of a release a little later, and go on as before until then.
    since = rows.take(rows.arrival > released + chain.plan.whole.late_seconds * _SECOND)
    yield from _unseen(chain, since, sum(rows.unread.values()), moment)
    yield from _artifacts(chain, since)
    named = [name == RELEASED for name in since.stages]
    elsewhere = int(sum(not named[stage] for stage in since.stage))
    if elsewhere:
        yield f"{elsewhere:,} row(s) since the release say that they belong to another stage"
    if health is not None and health.get("artifact") != chain.standing.artifact:
        yield "the service says of itself that it serves another artifact, or does not say which"


def read_health(path: Path) -> Mapping[str, Any]:
    """What a service's health address answered, saved to a file; InputError when that is no JSON object."""
    try:
        return read_object(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: it cannot be read: {error.strerror}; save what /health answers there") from error
    except ValueError as error:
        raise InputError(f"{path}: {error}; save what /health answers there") from error


def _unseen(chain: Chain, since: LiveRows, unread: int, now: int) -> Iterator[str]:
    """Why rows do not show what is served now; `now` in microseconds."""
    whole = chain.plan.whole
    # A row from the future shows nothing that was served, and would make every log look new for ever.
    ahead = since.arrival > now + whole.future_seconds * _SECOND
    seen = since.arrival[~ahead]
    if ahead.any():
        yield f"{int(ahead.sum()):,} row(s) since the release are from the future; compare the clocks"
    if len(seen) == 0:
        yield f"no row is newer than the release of {stamp(chain.moves[-1].time)}: what is served was not seen"
    elif now - int(seen.max()) > whole.stale_seconds * _SECOND:
        yield f"no row is newer than {whole.stale_seconds:g} seconds: what is served now was not seen"
    # As many as a stage may have: a line cut off by a kill long ago must not speak for ever.
    if unread and not unread / (since.count + unread) <= whole.unmeasured:
        yield f"{unread:,} row(s) of the log cannot be read, and may be of any artifact"


def _artifacts(chain: Chain, since: LiveRows) -> Iterator[str]:
    for number, name in enumerate(since.artifacts):
        here = since.artifact == number
        own = name == chain.standing.artifact
        count = int((here & ~since.fell_back).sum())
        if count and not own:
            known = "the fallback" if name == chain.standing.fallback else "an unknown artifact"
            yield f"{count:,} row(s) since the release were answered by {known}, {name[:19]}…, without a reason"
        back = int((here & since.fell_back).sum())
        if back:
            yield f"{back:,} request(s) since the release had to be answered by another path ({name[:19]}…)"
    old_arm = int((since.arm != NEW).sum())
    if old_arm:
        yield f"{old_arm:,} row(s) since the release are of the fallback arm"
