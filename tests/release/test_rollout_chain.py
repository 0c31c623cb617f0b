"""Chains: every change to one is refused, and no signature promotes what the signed counts do not allow."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pyarrow.parquet as pq
import pytest

from auditlib.errors import InputError, IntegrityError, KeyFileError
from auditlib.release.evidence import parse_evidence
from auditlib.release.refusals import RefusedError
from auditlib.release.rollout_chain import begin_chain, extend_chain, read_chain
from auditlib.release.rollout_course import after_move, follow
from auditlib.release.rollout_moves import Document, Signer, advance, by_hand, look, open_on, require_passed, start
from auditlib.release.rollout_served import what_is_wrong
from auditlib.release.rollout_transition import Subject, Transition, digest_of, parse_transition, transition_bytes
from auditlib.release.signing import sign
from auditlib.release.trust import load_trust
from auditlib.runs.live_log import read_live_log
from auditlib.serving.log_row import to_table
from tests.release.cases import digest, keyid, private_key, trusted, whole_checks
from tests.release.rollout_world import BEGIN, NEW, OLD, STARTS, live, plan, row, stages, standing

REPLAY, VERDICT = Document("replay", digest("replay")), Document("verdict", digest("verdict"))
SIGNED_BY_ADA = Document("verdict signer", f"sha256:{keyid('ada')}")


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


@dataclass
class World:
    """A chain on disk, its log, and Ada who moves it."""

    chain: object
    log: object
    signer: Signer
    trust: object

    def read(self):
        return read_chain(self.chain, self.trust)

    def lines(self):
        return self.chain.read_bytes().splitlines()

    def rewrite(self, lines):
        self.chain.write_bytes(b"".join(line + b"\n" for line in lines))

    def forget_head(self):
        """What somebody does who may write both files."""
        last = json.loads(self.lines()[-1])
        head = {"format": 1, "head": digest_of(base64.b64decode(last["payload"]))}
        self.chain.with_name("c.jsonl.head").write_text(json.dumps(head))

    def rows(self, rows):
        self.log.mkdir(exist_ok=True)
        for stage in {one.stage for one in rows}:
            pq.write_table(to_table([one for one in rows if one.stage == stage]), self.log / f"part-{stage}.parquet")
        return read_live_log(self.log)


def make(root, *, upto="canary 50") -> World:
    trust = load_trust(trusted("ada", "bob"))
    signer = Signer(private_key("ada"), trust)
    world = World(root / "c.jsonl", root / "log", signer, trust)
    start(world.chain, signer, plan(), artifact=NEW, fallback=OLD, tolerance=1e-3, now=at(-200))
    open_on(world.chain, signer, [REPLAY], at(-100))
    open_on(world.chain, signer, [VERDICT, SIGNED_BY_ADA], at(0))
    names = ["shadow", "canary 5", "canary 50"]
    for name in names[: names.index(upto)] if upto in names else names:
        following = {"shadow": "canary 5", "canary 5": "canary 50", "canary 50": "released"}[name]
        advance(world.chain, signer, world.rows(stages(name)), at(STARTS[following]))
    return world


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return make(tmp_path_factory.mktemp("sound"), upto="released")


@pytest.fixture
def world(sound, tmp_path):
    """A copy to do harm to."""
    copy = replace(sound, chain=tmp_path / "c.jsonl")
    copy.chain.write_bytes(sound.chain.read_bytes())
    copy.chain.with_name("c.jsonl.head").write_bytes(sound.chain.with_name("c.jsonl.head").read_bytes())
    return copy


def test_a_whole_rollout_goes_from_the_fallback_to_the_release_and_each_move_names_its_evidence(sound):
    chain = sound.read()
    assert [move.to for move in chain.moves] == [
        "fallback", "replay passed", "shadow", "canary 5", "canary 50", "released",
    ]  # fmt: skip
    assert chain.standing.state == "released"
    assert chain.standing.slow_us == 118_000
    assert chain.people == ("Ada",) * 6
    assert [one["kind"] for move in chain.moves for one in move.documents] == ["replay", "verdict", "verdict signer"]
    last = chain.moves[-1]
    assert {one["name"] for one in last.files} == {
        f"part-{name}.parquet" for name in ("shadow", "canary 5", "canary 50")
    }
    assert all(one["rows"] > 0 for one in last.files)


def edited_payload(line, **changes):
    envelope = json.loads(line)
    document = json.loads(base64.b64decode(envelope["payload"]))
    document["predicate"] |= changes
    envelope["payload"] = base64.b64encode(
        json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    ).decode()
    return json.dumps(envelope).encode()


ATTACKS = {
    "cut off at the end": lambda lines: lines[:-1],
    "cut off at the start": lambda lines: lines[1:],
    "one taken out": lambda lines: [*lines[:3], *lines[4:]],
    "two exchanged": lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
    "one twice": lambda lines: [*lines[:4], lines[3], *lines[4:]],
    "the last again": lambda lines: [*lines, lines[-1]],
    "an empty line": lambda lines: [*lines[:2], b"", *lines[2:]],
    "edited target": lambda lines: [*lines[:-1], edited_payload(lines[-1], to="canary 5")],
    "edited time": lambda lines: [edited_payload(lines[0], time="2026-11-01T00:00:00Z"), *lines[1:]],
    "no signature": lambda lines: [json.dumps({**json.loads(lines[0]), "signatures": []}).encode(), *lines[1:]],
    "another format": lambda lines: [b'{"to": "released"}', *lines[1:]],
    "torn line": lambda lines: [*lines[:-1], lines[-1][:200]],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_chain_that_was_changed_is_refused(world, attack):
    world.rewrite(ATTACKS[attack](world.lines()))
    with pytest.raises(RefusedError):
        world.read()


def test_a_chain_without_its_last_line_end_is_refused(world):
    world.chain.write_bytes(world.chain.read_bytes()[:-1])
    with pytest.raises(RefusedError, match="whole line"):
        world.read()


def test_every_byte_that_is_flipped_is_refused_or_changes_nothing_that_was_signed(world):
    data = world.chain.read_bytes()
    before = [transition_bytes(move) for move in world.read().moves]
    for place in range(0, len(data), 997):
        world.chain.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            after = [transition_bytes(move) for move in world.read().moves]
        except IntegrityError:
            continue
        assert after == before


def test_a_chain_cut_off_together_with_its_head_is_told_by_a_head_noted_elsewhere(world):
    noted = world.read().head
    world.rewrite(world.lines()[:-1])
    world.forget_head()
    assert world.read().standing.state == "canary 50"
    with pytest.raises(RefusedError, match="lacks a transition"):
        read_chain(world.chain, world.trust, noted)


def test_a_chain_without_its_head_file_is_refused(world):
    world.chain.with_name("c.jsonl.head").unlink()
    with pytest.raises(RefusedError, match="head"):
        world.read()


def test_a_chain_signed_by_a_stranger_is_refused(tmp_path, sound):
    stranger = Signer(private_key("mallory"), load_trust(trusted("mallory")))
    start(tmp_path / "c.jsonl", stranger, plan(), artifact=NEW, fallback=OLD, tolerance=1e-3, now=at(0))
    with pytest.raises(RefusedError, match="foreign key"):
        read_chain(tmp_path / "c.jsonl", sound.trust)


@pytest.mark.parametrize("spoilt", [{"revoked": True}, {"roles": []}, {"not_after": "2026-11-01T00:00:00Z"}])
def test_a_chain_by_a_key_that_no_longer_counts_is_refused(sound, spoilt):
    with pytest.raises(RefusedError):
        read_chain(sound.chain, load_trust(trusted("ada", **spoilt)))


def test_a_transition_of_another_rollout_does_not_fit_in(world, tmp_path):
    other = make(tmp_path / "other", upto="shadow") if (tmp_path / "other").mkdir() is None else None
    lines = world.lines()
    world.rewrite([*lines[:2], other.lines()[2], *lines[3:]])
    with pytest.raises(RefusedError):
        world.read()


def test_a_verdict_is_no_transition():
    payload = transition_bytes(make_move())
    document = json.loads(payload)
    document["predicateType"] = "https://in-toto.io/attestation/test-result/v0.1"
    with pytest.raises(RefusedError, match="malformed"):
        parse_transition(json.dumps(document, sort_keys=True, separators=(",", ":")).encode())


def make_move(**changed) -> Transition:
    about = Subject("0" * 32, NEW, OLD, 1e-3, plan().digest)
    first = Transition(about, 1, None, at(0), "start", "person", "", "fallback", "k", plan=plan().to_json())
    return replace(first, **changed)


def forged(sound, **changed):
    """The sound chain with its last move replaced by another that a trusted key signs."""
    moves = sound.read().moves
    return [*moves[:-1], replace(moves[-1], **changed)]


def counts_with(sound, **changed):
    return {**sound.read().moves[-1].counts, **changed}


FORGERIES = {
    "no counts": lambda s: {"counts": None},
    "no log": lambda s: {"files": ()},
    "a stage left out": lambda s: {"to": "canary 5"},
    "counts of another stage": lambda s: {"counts": s.read().moves[-2].counts},
    "counts of nothing": lambda s: {"counts": counts_with(s, stages={})},
    "a fault": lambda s: {"counts": counts_with(s, faults={"row from the future": 1})},
    "counts that are none": lambda s: {"counts": counts_with(s, rows=-1)},
    "old rows": lambda s: {"counts": counts_with(s, newest=0)},
    "no rows": lambda s: {"counts": counts_with(s, newest=None)},
    "unfinished files": lambda s: {"counts": counts_with(s, unfinished=1)},
    "by a person": lambda s: {"by": "person", "comment": "I know better"},
    "another artifact": lambda s: {"subject": replace(s.read().moves[-1].subject, artifact=OLD)},
    "another tolerance": lambda s: {"subject": replace(s.read().moves[-1].subject, tolerance=1.0)},
    "another plan": lambda s: {"plan": plan(alpha=0.5).to_json()},
    "an earlier time": lambda s: {"time": at(0)},
    "a later time": lambda s: {"time": at(1e6)},
    "fewer rows": lambda s: {"files": s.read().moves[-1].files[:1]},
    "from another state": lambda s: {"source": "shadow"},
    "a start": lambda s: {"kind": "start"},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_trusted_signer_cannot_promote_what_the_counts_do_not_allow(sound, forgery):
    with pytest.raises(RefusedError):
        follow(forged(sound, **FORGERIES[forgery](sound)))


@pytest.mark.parametrize("stage", ["shadow", "canary 5", "canary 50"])
@pytest.mark.parametrize("arm", ["new", "fallback"])
@pytest.mark.parametrize("count", ["requests", "whole"])
@pytest.mark.parametrize("value", [0, None, -1, "1", float("nan")])
def test_no_count_that_was_taken_out_of_the_evidence_promotes(sound, stage, arm, count, value):
    counts = json.loads(json.dumps(sound.read().moves[-1].counts))
    counts["stages"][stage][arm][count] = value
    if stage != "canary 50" and value == 0:
        return  # earlier stages were decided on the counts of their time
    with pytest.raises(RefusedError):
        follow(forged(sound, counts=counts))


@pytest.mark.parametrize("bad", [None, 2**63 - 1, 2**63, 10**400], ids=["one too many", "2^63-1", "2^63", "10^400"])
@pytest.mark.parametrize("name", ["invalid", "error", "slow", "whole", "units", "invalid_requests", "error_requests"])
@pytest.mark.parametrize("arm", ["new", "fallback"])
def test_counts_that_contradict_each_other_are_refused_and_break_nothing(sound, name, bad, arm):
    counts = json.loads(json.dumps(sound.read().moves[-1].counts))
    told = counts["stages"]["canary 50"][arm]
    told[name] = told["requests"] + 1 if bad is None else bad
    move = replace(sound.read().moves[-1], counts=counts)
    with pytest.raises(RefusedError, match="malformed"):
        after_move(plan(limits={"invalid": 0.02, "error": 0.02}), standing("canary 50"), move)


def test_a_signed_forgery_in_the_file_is_refused_too(world):
    moves = forged(world, counts=counts_with(world, faults={"row from the future": 1}))
    line = sign(transition_bytes(moves[-1]), private_key("ada"))
    world.rewrite([*world.lines()[:-1], line.rstrip(b"\n")])
    world.forget_head()
    with pytest.raises(RefusedError, match="counts allow"):
        world.read()


def test_a_move_is_signed_by_the_one_who_makes_it_and_nobody_else(world):
    def move(chain):
        about = chain.moves[-1].subject
        return Transition(about, 7, chain.head, at(9000), "roll back", "person", "released", "rolled back", "x", "why")

    before = world.chain.read_bytes()
    with pytest.raises(KeyFileError):
        extend_chain(world.chain, world.trust, world.signer.key, move)
    assert world.chain.read_bytes() == before


@pytest.mark.parametrize("step", [("replay passed", []), ("replay passed", [VERDICT]), ("shadow", [REPLAY])])
def test_before_the_first_stage_each_step_needs_its_own_document(tmp_path, step):
    to, documents = step
    trust = load_trust(trusted("ada"))
    signer = Signer(private_key("ada"), trust)
    start(tmp_path / "c", signer, plan(), artifact=NEW, fallback=OLD, tolerance=1e-3, now=at(-200))
    if to == "shadow":
        open_on(tmp_path / "c", signer, [REPLAY], at(-100))
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(RefusedError, match="rests on no"):
        open_on(tmp_path / "c", signer, documents, at(0))
    assert (tmp_path / "c").read_bytes() == before


def test_a_hold_writes_nothing(tmp_path):
    world = make(tmp_path, upto="shadow")
    before = world.chain.read_bytes()
    chain, decision = advance(world.chain, world.signer, world.rows(stages("shadow")[:20]), at(30))
    assert (decision.action, chain.standing.state) == ("hold", "shadow")
    assert world.chain.read_bytes() == before


def test_harm_is_rolled_back_and_nothing_follows(tmp_path):
    world = make(tmp_path, upto="canary 50")
    rows = [replace(one, valid=False, rule="init") if one.arm == "new" else one for one in stages("canary 50")]
    log = world.rows([one for one in rows if one.stage == "canary 50"])
    chain, decision = advance(world.chain, world.signer, log, at(3900))
    assert (decision.action, chain.standing.state) == ("roll back", "rolled back")
    with pytest.raises(InputError, match="rolled back"):
        by_hand(world.chain, world.signer, "resume", "again", now=at(4000))
    assert advance(world.chain, world.signer, log, at(4100))[1].action == "hold"


def test_a_fault_pauses_a_person_resumes_and_the_same_fault_does_not_pause_again(tmp_path):
    world = make(tmp_path, upto="canary 5")
    strange = [*stages("canary 5"), row(7000, "canary 5", "new", 1400, artifact=OLD)]
    log = world.rows(strange)
    chain, decision = advance(world.chain, world.signer, log, at(1600))
    assert (decision.action, chain.standing.paused) == ("pause", True)
    assert advance(world.chain, world.signer, log, at(1700))[1].action == "hold"
    chain = by_hand(world.chain, world.signer, "resume", "one server was stopped by hand", log, at(1800))
    assert chain.standing.accepted == {"old version served in the new arm": 1}
    assert advance(world.chain, world.signer, log, at(1900))[0].standing.state == "canary 50"


@pytest.mark.parametrize(("kind", "comment"), [("resume", "why"), ("pause", " ")])
def test_a_person_moves_only_where_that_means_something_and_with_a_reason(world, kind, comment):
    with pytest.raises(InputError):
        by_hand(world.chain, world.signer, kind, comment, now=at(9000))


def test_a_person_may_pause_and_roll_back_a_release(world):
    assert by_hand(world.chain, world.signer, "pause", "look first", now=at(9000)).standing.paused
    chain = by_hand(world.chain, world.signer, "roll back", "no", now=at(9100))
    assert chain.standing.state == "rolled back"


def test_a_chain_file_is_never_begun_anew(world):
    with pytest.raises(InputError, match="there already"):
        start(world.chain, world.signer, plan(), artifact=NEW, fallback=OLD, tolerance=1e-3, now=at(0))
    with pytest.raises(RefusedError):
        begin_chain(world.chain.with_name("d"), make_move(to="released"), world.signer.key, world.trust)


def test_an_artifact_is_not_its_own_fallback(tmp_path, sound):
    with pytest.raises(InputError, match="the same"):
        start(tmp_path / "c", sound.signer, plan(), artifact=NEW, fallback=NEW, tolerance=1e-3)


def test_rows_that_a_move_stands_on_must_stay_in_the_log_as_they_were(tmp_path):
    world = make(tmp_path, upto="canary 5")
    log = world.rows(stages("canary 5"))
    look(world.read(), log, at(1600))
    more = [*stages("shadow"), row(900, "shadow", "fallback", 990)]
    look(world.read(), world.rows([*more, *stages("canary 5")[120:]]), at(1600))  # rows behind them may come
    for changed in (more[1:], [replace(more[0], valid=False, rule="x"), *more[1:]], [more[1], more[0], *more[2:]]):
        with pytest.raises(IntegrityError, match="stands on"):
            look(world.read(), world.rows([*changed, *stages("canary 5")[120:]]), at(1600))
    (world.log / "part-shadow.parquet").unlink()
    with pytest.raises(IntegrityError, match="stands on"):
        look(world.read(), read_live_log(world.log), at(1600))


GOOD_REPLAY = {
    "format": 1, "kind": "replay", "artifact": NEW, "status": "passed", "checks": whole_checks("replay")
}  # fmt: skip
GOOD_BENCH = {**GOOD_REPLAY, "kind": "bench", "checks": whole_checks("bench")}
DIGEST = f"sha256:{5:064x}"


def taken(document, kind="replay", tolerance=1e-3):
    return require_passed(parse_evidence(document, DIGEST), kind, NEW, tolerance)


def test_a_replay_under_a_wider_tolerance_than_the_artifacts_moves_nothing():
    assert taken(GOOD_REPLAY, tolerance=4e-5) == Document("replay", DIGEST)
    with pytest.raises(IntegrityError, match='"saved logits" was held against 4e-05 instead of 3e-05'):
        taken(GOOD_REPLAY, tolerance=3e-5)


@pytest.mark.parametrize("document", [GOOD_REPLAY, GOOD_BENCH], ids=lambda one: one["kind"])
def test_passed_evidence_on_the_artifact_is_taken(document):
    assert taken(document, document["kind"]) == Document(document["kind"], DIGEST)


@pytest.mark.parametrize("document", [GOOD_REPLAY, GOOD_BENCH], ids=lambda one: one["kind"])
def test_evidence_that_lacks_any_check_of_its_kind_moves_nothing(document):
    checks = document["checks"]
    asked_for = range(0 if document is GOOD_REPLAY else 3, len(checks))  # the policy states the first of a bench
    for gone in asked_for:
        with pytest.raises(IntegrityError, match=f'"{checks[gone]["name"]}" is missing.* run {document["kind"]} again'):
            taken({**document, "checks": checks[:gone] + checks[gone + 1 :]}, document["kind"])


def test_a_bench_is_no_replay_and_one_that_failed_is_no_evidence():
    with pytest.raises(IntegrityError, match="no replay of this artifact"):
        taken(GOOD_BENCH)
    with pytest.raises(IntegrityError, match="did not pass"):
        taken({**GOOD_BENCH, "status": "failed"}, "bench")


@pytest.mark.parametrize("name", sorted(GOOD_REPLAY))
@pytest.mark.parametrize("value", [None, "", "failed", [], float("nan")])
def test_a_replay_that_says_less_is_not_taken(name, value):
    for document in ({**GOOD_REPLAY, name: value}, {k: v for k, v in GOOD_REPLAY.items() if k != name}):
        with pytest.raises((IntegrityError, ValueError, KeyError, TypeError)):
            taken(document)


@pytest.mark.parametrize("name", ["value", "limit", "count", "status"])
@pytest.mark.parametrize("value", [None, "0", float("nan"), float("inf"), -1, True])
def test_a_check_of_a_replay_that_says_less_is_not_taken(name, value):
    if (name, value) == ("value", -1):
        return  # below its limit
    with pytest.raises((IntegrityError, ValueError)):
        first, *others = whole_checks("replay")
        taken({**GOOD_REPLAY, "checks": [*others, {**first, name: value}]})


@pytest.mark.parametrize(
    ("rows", "health", "said"),
    [
        ([], None, "was not seen"),
        ([row(1, "released", "new", 7000, artifact=OLD)], None, "the fallback"),
        ([row(1, "released", "new", 7000, artifact="sha256:x")], None, "unknown artifact"),
        ([row(1, "released", "new", 7000, fallback="rejected cache")], None, "another path"),
        ([row(1, "released", "fallback", 7000, artifact=NEW)], None, "fallback arm"),
        ([row(1, "canary 50", "new", 7000)], None, "another stage"),
        ([row(1, "released", "new", 7000)], {"artifact": OLD}, "says of itself"),
        ([row(1, "released", "new", 7000)], {}, "says of itself"),
        ([row(1, "released", "new", 7000)], {"artifact": NEW}, ""),
    ],
)
def test_after_the_release_what_is_served_is_held_against_what_was_released(sound, rows, health, said):
    wrong = list(what_is_wrong(sound.read(), live([*stages("canary 50"), *rows]), health, at(7100)))
    assert (not wrong) == (not said)
    assert said in " ".join(wrong)


@pytest.mark.parametrize(
    ("now", "unread", "said"),
    [
        (7000 + 3600, 0, ""),
        (7000 + 3602, 0, "no row is newer than 3600 seconds: what is served now was not seen"),
        (7000 - 299, 0, ""),
        (7000 - 301, 0, "1 row(s) since the release are from the future; compare the clocks"),
        (7100, 1, "1 row(s) of the log cannot be read"),
    ],
)
def test_a_log_that_does_not_show_what_is_served_now_is_no_proof_of_it(sound, now, unread, said):
    rows = live([*stages("canary 50"), row(1, "released", "new", 7000)])
    wrong = list(what_is_wrong(sound.read(), replace(rows, unread={"a reason": unread}), None, at(now)))
    assert (not wrong) == (not said)
    assert said in " ".join(wrong)


def test_a_few_unreadable_rows_among_many_are_let_pass_as_in_a_stage(sound):
    many = [row(number, "released", "new", 7000 + number) for number in range(100)]
    rows = replace(live([*stages("canary 50"), *many]), unread={"a reason": 1})
    assert list(what_is_wrong(sound.read(), rows, None, at(7200))) == []


def test_before_the_release_nothing_is_served_as_released(tmp_path):
    world = make(tmp_path, upto="canary 5")
    assert "not released" in " ".join(what_is_wrong(world.read(), world.rows(stages("canary 5")).rows))


@pytest.mark.parametrize("people", [["bob"], ["ada", "bob"]])
def test_a_move_that_another_trusted_person_signed_for_its_maker_is_refused(world, people):
    payload = transition_bytes(world.read().moves[-1])
    envelope = None
    for person in people:
        envelope = sign(payload, private_key(person), envelope)
    world.rewrite([*world.lines()[:-1], envelope.rstrip(b"\n")])
    with pytest.raises(RefusedError, match="not signed by the one who made it"):
        world.read()
