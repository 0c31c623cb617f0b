"""From artifact folders to what answers: one service, or the two arms of a rollout, with their log and health."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from auditlib.errors import ArtifactError, InputError, RequestRefusedError
from auditlib.serving.arms import Arms, Stage, takes_new
from auditlib.serving.artifact import Artifact, open_artifact
from auditlib.serving.artifact_document import FALLBACK_FULL_PREFIX
from auditlib.serving.keeping import Keeper
from auditlib.serving.log_row import Arm
from auditlib.serving.moments import Clock
from auditlib.serving.on_disk import OnDisk
from auditlib.serving.request import Answer, Request
from auditlib.serving.request_log import RequestLog
from auditlib.serving.routes import Label
from auditlib.serving.served import Served
from auditlib.serving.service import Service


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How to serve. `log`: folder of the request log. `stage`: of a rollout, None when there is none.

    `compare`: share of the requests that are answered by full prefixes too. `timeout`: seconds a path may take.
    """

    log: Path | None = None
    stage: Stage | None = None
    compare: float = 0.0
    timeout: float = 30.0
    device: str = "cpu"
    allow_code: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.compare <= 1:
            raise InputError(f"--compare {self.compare}: give the share of requests to compare, 0 to 1")
        if not 0 < self.timeout < float("inf"):
            raise InputError(f"--timeout {self.timeout}: give a number of seconds above 0")
        if self.stage is not None and self.log is None:
            raise InputError("a rollout decides on its request log; give the folder for it with --log")


class OpenService:
    """Artifacts that were verified and loaded, ready to answer. Use as an asynchronous context.

    `services` holds one service by the arm it stands for, or both arms of a rollout.
    """

    def __init__(self, services: dict[Arm, Service], stage: Stage | None, keeper: Keeper, watched: dict[str, OnDisk],
                 asked: str) -> None:  # fmt: skip
        """`asked`: digest of the artifact that was opened, whoever answers for it."""
        self.services, self.stage, self.keeper = services, stage, keeper
        self.draining = False
        """Set when no new request may come in any more."""
        self._arms = None if stage is None else Arms(services["new"], services["fallback"], stage)
        self._closed: str | None = None
        self._watched, self._asked = watched, asked

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *problem: object) -> None:
        if self._arms is not None:
            await self._arms.__aexit__(*problem)
        else:
            await self.main.__aexit__(*problem)
        self.keeper.close()

    @property
    def main(self) -> Service:
        """The service of the new artifact; of its fallback, where the artifact serves nothing."""
        return self.services["new"] if "new" in self.services else self.services["fallback"]

    async def answer(self, request: Request) -> Answer:
        """The answer to one request; errors are those of `Service.answer`.

        A rollout that cannot see is not to go on: once a row of it was lost, its fallback answers everything, and an
        answer of the new artifact that has no row is not given.
        """
        if self.draining:
            raise RequestRefusedError("shutting down", "no new requests are taken; ask again in a moment")
        stage = self.stage
        if self._arms is None or stage is None:
            return await self.main.answer(request)
        if self._is_open():
            answer = await self._arms.answer(request)
            self._is_open()  # so that the next request knows
            if not (takes_new(request.request_id, stage.share) and self.keeper.has_no_row(request.request_id)):
                return answer
        return await self.services["fallback"].answer(request)

    def move_to(self, stage: Stage) -> None:
        """Go on in another stage of the rollout; InputError where none was opened."""
        if self._arms is None:
            raise InputError("this service takes no part in a rollout, so there is no stage to change")
        if stage != self.stage:
            self._arms.move_to(stage)
            self.stage = stage

    def close_new_arm(self, reason: str) -> None:
        """Let the fallback answer everything, until a restart."""
        self._closed = self._closed or reason

    async def health(self) -> dict[str, Any]:
        """What serves, how, and what is wrong: "ok", "degraded" where something is, "failed" when nothing answers."""
        own, is_open = self.main.health(), self._arms is None or self._is_open()
        on_disk = {name: await asyncio.to_thread(one.state) for name, one in self._watched.items()}
        reasons = list(self._reasons(on_disk))
        parts = [service.health()["status"] for service in self.services.values()]
        status = "failed" if "failed" in parts else "degraded" if reasons or "degraded" in parts else "ok"
        return {
            **own,
            "status": status,
            "asked": self._asked,
            "reasons": reasons,
            "on_disk": on_disk,
            "stage": None if self.stage is None else {
                "name": self.stage.name, "share": self.stage.share, "shadow": self.stage.shadow,
                "new_arm": "open" if is_open else "closed",
            },
            "arms": {arm: service.health() for arm, service in self.services.items()},
            "fallbacks": {arm: dict(service.counts.fallbacks) for arm, service in self.services.items()},
            "log": self.keeper.to_json(),
            "draining": self.draining,
        }  # fmt: skip

    def answers(self) -> bool:
        """Whether a request that comes in now may be answered."""
        return not self.draining and self.main.health()["status"] != "failed"

    def _is_open(self) -> bool:
        """Whether the new arm takes part; it never does again in this process after a row was lost."""
        # The first failure, not the newest: a row that was written since then has not brought back the lost one.
        self._closed = self._closed or self.keeper.first_failure
        return self._closed is None

    def _reasons(self, on_disk: Mapping[str, str]) -> list[str]:
        """Why this is not as it should be, beside what each service says of itself."""
        found = [
            f"the {name} on disk is {state}; the one that was loaded goes on serving, and a restart will refuse"
            for name, state in on_disk.items()
            if state != "same"
        ]
        if self._asked != self.main.served.digest:
            found.append("the artifact serves nothing, because its run blocks every setting; its fallback answers")
        if self._closed is not None:
            found.append(f"the new arm is closed, and the fallback answers everything until a restart: {self._closed}")
        if self.keeper.failure is not None:
            found.append(self.keeper.failure)
        elif self.keeper.lost:
            found.append(f"{self.keeper.lost:,} rows of the request log were lost")
        return found


def open_service(
    folder: Path,
    fallback_folder: Path | None = None,
    options: ServiceOptions | None = None,
    *,
    digest: str | None = None,
    clock: Clock | None = None,
) -> OpenService:
    """What serves the artifact in `folder`, each file of it and of its fallback verified; `digest` pins the artifact.

    ArtifactError or IntegrityError where a folder is not what it must be, InputError for options that make no sense or
    a log folder that cannot be written.
    """
    options, clock = options or ServiceOptions(), clock or Clock()
    artifact = open_artifact(folder, digest)
    if not artifact.serves and options.stage is not None:
        raise ArtifactError(f"{folder}: serves nothing, so it cannot be rolled out; serve it without --stage")
    fallback = fallback_of(artifact, fallback_folder)
    served = artifact.load(options.device, allow_code=options.allow_code) if artifact.serves else None
    earlier = None if fallback is None else fallback.load(options.device, allow_code=options.allow_code)
    keeper = Keeper(None if options.log is None else _log(options.log))
    services = _services(served, earlier, options, keeper, clock)
    named = {"artifact": artifact} if fallback is None else {"artifact": artifact, "fallback": fallback}
    watched = {name: OnDisk(one.folder, one.digest) for name, one in named.items()}
    return OpenService(services, options.stage, keeper, watched, artifact.digest)


def fallback_of(artifact: Artifact, folder: Path | None) -> Artifact | None:
    """The fallback artifact that an artifact names, verified; None where that is the full prefix path.

    ArtifactError where `folder` is missing, needless or serves nothing; IntegrityError for another artifact.
    """
    if artifact.fallback == FALLBACK_FULL_PREFIX:
        if folder is not None:
            raise ArtifactError(
                f"{artifact.folder}: names the full prefix path as its fallback, not an artifact; leave out --fallback"
            )
        return None
    if folder is None:
        raise ArtifactError(
            f"{artifact.folder}: cannot be served without its fallback {artifact.fallback}; give its folder with "
            "--fallback"
        )
    fallback = open_artifact(folder, artifact.fallback)
    if not fallback.serves:
        raise ArtifactError(f"{folder}: serves nothing itself, so it is no fallback; package again with another one")
    return fallback


def _services(
    served: Served | None, earlier: Served | None, options: ServiceOptions, keeper: Keeper, clock: Clock
) -> dict[Arm, Service]:
    """One service, or both arms of a rollout, each labelled for the log."""
    stage = "released" if options.stage is None else options.stage.name

    def made(arm: Arm, what: Served, behind: Served | None, compare: float) -> Service:
        """One arm's service, whose rows in the log bear the arm and the rollout's stage."""
        terms = {"label": Label(arm, stage), "compare": compare, "timeout": options.timeout, "clock": clock}
        return Service(what, fallback=behind, keep=keeper.keep, **terms)  # type: ignore[arg-type]

    if served is None:
        if earlier is None:
            raise ArtifactError("neither the artifact nor a fallback serves; package again")
        return {"fallback": made("fallback", earlier, None, 0.0)}
    services: dict[Arm, Service] = {"new": made("new", served, earlier, options.compare)}
    if options.stage is not None:
        # Where the fallback is the full prefix path, the same decoder is the other arm, without a cache.
        old = replace(served, strategy="full prefix") if earlier is None else earlier
        services["fallback"] = made("fallback", old, None, 0.0)
    return services


def _log(folder: Path) -> RequestLog:
    try:
        return RequestLog(folder)
    except OSError as problem:
        raise InputError(
            f"{folder}: no request log can be written there ({problem.strerror or problem}); make room or give another "
            "folder with --log"
        ) from problem
