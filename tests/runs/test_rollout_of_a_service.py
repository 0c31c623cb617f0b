"""A service that really runs writes rows that a rollout takes as whole, in its shadow stage, canary and failures."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
import torch

from auditlib.errors import RequestFailedError, RequestRefusedError
from auditlib.release.rollout_evidence import gather
from auditlib.release.rollout_plan import parse_plan
from auditlib.release.rollout_standing import Standing
from auditlib.runs.live_log import read_live_log
from auditlib.serving.arms import Arms, Stage
from auditlib.serving.request_log import RequestLog
from auditlib.serving.routes import Label
from auditlib.serving.service import Service
from tests.doubles import ToyDecoder
from tests.release.rollout_world import PLAN
from tests.serving.test_serving_engine import MAP, requests_for, toy

OLD = "sha256:old"


class Broken(ToyDecoder):
    """A decoder whose every step fails."""

    def _read(self, events, valid, rows):
        raise RuntimeError("the device is gone")


def log_of(folder, stage, new, count=24):
    """What a service writes while both arms run in `stage`; the fallback is an earlier artifact of the same decoder."""
    torch.set_num_threads(1)
    old = replace(toy(strategy="full prefix"), digest=OLD)

    async def run(log):
        service = Service(new, fallback=old, keep=log.keep, label=Label("new", stage.name), compare=1.0, timeout=5)
        other = Service(old, keep=log.keep, label=Label("fallback", stage.name))
        async with Arms(service, other, stage) as arms:
            for one in requests_for(new, count):
                try:
                    await arms.answer(one.request)
                except (RequestRefusedError, RequestFailedError):
                    continue

    with RequestLog(folder) as log:
        asyncio.run(run(log))
    return read_live_log(folder)


def evidence_of(log, stage):
    entered = dict.fromkeys(("shadow", "canary 5", "canary 50"), 0)
    here = Standing(stage, False, "sha256:toy", OLD, 1e-6, entered, 10**9, {})
    plan = parse_plan({**PLAN, "whole": {"late_seconds": 1e9}})
    return gather(log.rows, plan, here, time.time_ns() // 1000)


@pytest.mark.parametrize(("name", "share", "shadow"), [("shadow", 0.0, True), ("canary 50", 0.5, False)])
def test_the_rows_of_both_arms_are_whole_and_every_answer_was_compared(tmp_path, name, share, shadow):
    log = log_of(tmp_path, Stage(name, share, shadow), toy())
    assert log.lacking == {}
    evidence = evidence_of(log, name)
    counts = evidence.stages[name]
    assert evidence.faults == {}
    assert counts.new.requests + counts.fallback.requests == (48 if shadow else 24)
    assert counts.new.whole == counts.new.requests == counts.compared > 0
    assert counts.mismatches == counts.unpaired == counts.new.error == 0


def test_what_the_fallback_had_to_answer_is_an_error_of_the_new_arm_and_no_unknown_artifact(tmp_path):
    broken = toy(decoder=Broken(MAP.size, 14))
    log = log_of(tmp_path, Stage("canary 50", 0.5), broken, 12)
    evidence = evidence_of(log, "canary 50")
    new = evidence.stages["canary 50"].new
    assert evidence.faults == {}
    assert new.error == new.requests > 0
    assert evidence.stages["canary 50"].fallback.error == 0


def test_the_old_version_started_as_the_new_arm_is_seen(tmp_path):
    log = log_of(tmp_path, Stage("canary 50", 0.5), replace(toy(), digest=OLD), 12)
    assert evidence_of(log, "canary 50").faults["old version served in the new arm"] > 0
