"""A service follows its rollout: onwards as it is signed, back to the fallback, and nowhere on a broken chain."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pyarrow.parquet as pq
import pytest

from auditlib.cli.main import main
from auditlib.errors import InputError, PrefixgateError
from auditlib.release.refusals import RefusedError
from auditlib.runs.package import PackageRequest, package_run
from auditlib.runs.rollout_stage import watched_stage
from auditlib.serving.arms import Stage
from auditlib.serving.following import follow
from auditlib.serving.opening import ServiceOptions, open_service
from auditlib.serving.request import Request
from tests.cli.test_rollout_verb import Desk, desk, made, quick  # noqa: F401 - fixtures
from tests.packed import judged_run
from tests.release.rollout_world import shadow
from tests.small_gpt import write_small_revision

REQUESTS = [Request(f"s{number}", ("opened",), {}, None, f"r{number}") for number in range(40)]


def served_by(place: Desk, between) -> tuple[list[str], list[dict]]:
    """Arms of the rows of requests asked before and after `between` moved the rollout, and health after each."""

    async def run():
        look = watched_stage(place.folder / "c.jsonl", place.root / "trust.json", place.root / "artifact")
        options = ServiceOptions(log=place.folder / "requests", stage=look())
        opened = open_service(place.root / "artifact", None, options)
        healths = []
        async with opened:
            following = asyncio.create_task(follow(opened, look, every=0.02))
            for turn in range(2):
                if turn:
                    await asyncio.to_thread(between)
                    await until(partial(caught_up, opened, following, stage_now(look)))
                for request in REQUESTS:
                    await opened.answer(
                        Request(request.session, request.events, {}, None, f"{turn}-{request.request_id}")
                    )
                for service in opened.services.values():
                    await service.settle()
                healths.append(await opened.health())
            following.cancel()
        return healths

    healths = asyncio.run(run())
    rows = [row for part in (place.folder / "requests").glob("part-*") for row in pq.read_table(part).to_pylist()]
    return rows, healths


def stage_now(look) -> Stage | None:
    """The stage that a look finds; None where the chain cannot be read any more."""
    try:
        return look()
    except PrefixgateError:
        return None


def caught_up(opened, following, expected: Stage | None) -> bool:
    return opened.stage == expected or following.done()


async def until(seen) -> None:
    """Wait for what a thread does, as long as a loaded machine may take."""
    for _ in range(3000):
        if seen():
            return
        await asyncio.sleep(0.01)


def arms(rows, turn):
    return {(row["stage"], row["arm"]) for row in rows if row["request_id"].startswith(f"{turn}-")}


def test_before_a_replay_passed_only_the_fallback_answers_and_then_both_do(desk):  # noqa: F811
    desk.start()

    def opened():
        desk("advance", "--replay", desk.root / "replay.json")
        desk("advance", "--verdict", desk.root / "verdict.json")

    rows, healths = served_by(desk, opened)
    assert arms(rows, 0) == {("fallback", "fallback")}
    assert arms(rows, 1) == {("shadow", "new"), ("shadow", "fallback")}
    assert [health["stage"]["name"] for health in healths] == ["fallback", "shadow"]


def test_a_roll_back_takes_the_new_arm_out_while_it_serves(desk):  # noqa: F811
    desk.to_shadow()
    desk.write("1", quick(shadow()))
    assert desk("advance", "--log", desk.log)[1]["state"] == "canary 5"
    rows, _ = served_by(desk, lambda: desk("roll-back", "--comment", "too slow"))
    assert {stage for stage, _ in arms(rows, 0)} == {"canary 5"}
    assert arms(rows, 1) == {("rolled back", "fallback")}


def test_a_chain_that_was_edited_closes_the_new_arm(desk):  # noqa: F811
    desk.to_shadow()

    def edited():
        chain = desk.folder / "c.jsonl"
        chain.write_bytes(chain.read_bytes()[:-20])

    rows, healths = served_by(desk, edited)
    assert arms(rows, 1) == {("shadow", "fallback")}
    assert healths[1]["stage"]["new_arm"] == "closed"
    assert any("cannot be followed" in reason for reason in healths[1]["reasons"])


def test_a_pause_is_seen_and_so_is_its_end(desk):  # noqa: F811
    desk.to_shadow()
    look = watched_stage(desk.folder / "c.jsonl", desk.root / "trust.json", desk.root / "artifact")
    assert look() == Stage("shadow", 0.0, shadow=True)
    desk("pause", "--comment", "lunch")
    assert look() == Stage("paused", 0.0)
    desk("resume", "--comment", "back")
    assert look() == Stage("shadow", 0.0, shadow=True)


def test_a_key_that_was_revoked_moves_what_is_served_no_more_though_the_chain_stays_as_it_is(desk):  # noqa: F811
    desk.to_shadow()
    desk.trust = desk.folder / "own-trust.json"
    desk.trust.write_bytes((desk.root / "trust.json").read_bytes())
    look = watched_stage(desk.folder / "c.jsonl", desk.trust, desk.root / "artifact")
    assert look() == Stage("shadow", 0.0, shadow=True)
    document = json.loads(desk.trust.read_text())
    document["keys"][0]["revoked"] = True
    desk.trust.write_text(json.dumps(document))
    for _ in range(2):
        with pytest.raises(RefusedError, match="revoked"):
            look()


def test_a_rollout_of_another_artifact_is_not_served(desk, another):  # noqa: F811
    desk.start()
    with pytest.raises(InputError, match="serve what the rollout is about"):
        watched_stage(desk.folder / "c.jsonl", desk.root / "trust.json", another)


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    root = tmp_path_factory.mktemp("another")
    revision = write_small_revision(root / "revision", seed=9)
    run = judged_run(root / "runs", revision)
    package_run(PackageRequest(run.folder, root / "artifact", revision.folder))
    return root / "artifact"


@pytest.mark.parametrize("more", [["--chain", "c"], ["--trust", "t"], ["--chain", "c", "--trust", "t", "--stage", "x"]])
def test_a_rollout_is_followed_whole_or_not_at_all(more, capsys):
    assert main(["serve", "nowhere", "--port", "0", *more]) == 2
    assert "--chain with --trust" in capsys.readouterr().err


def test_a_chain_that_is_not_there_is_refused(desk, tmp_path):  # noqa: F811
    with pytest.raises((PrefixgateError, OSError)):
        watched_stage(tmp_path / "none", desk.root / "trust.json", desk.root / "artifact")
