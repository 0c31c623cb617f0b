"""The fixed batch of an artifact: prefixes of every kind, with the answers that each got alone."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.decoders.tensor_file import read_tensors, write_tensors
from auditlib.decoding.loop import generate
from auditlib.errors import ArtifactError, IntegrityError, RevisionError
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from auditlib.serving.artifact import open_artifact
from auditlib.serving.fixed_batch import read_fixed_batch
from auditlib.serving.replay_prefixes import choose_prefixes
from tests.packed import SEEN, put, replaced, small_artifact

MAP = EventMap.build(["assigned", "closed", "opened", "repaired"])
GOLD = {"attribute": "contract", "in": ["gold"]}


def order_of(*rules, reopening=None):
    document = {"format": 1, "version": "1", "rules": list(rules), "reopening": reopening}
    return EventOrder.from_json(json.dumps(document)).compile(MAP)


FREE = order_of()
CLOSED_ONCE = order_of({"template": "not succession", "first": "closed", "then": "closed"})
BY_CONTRACT = order_of(
    {"template": "init", "event": "opened"}, {"template": "absence", "event": "repaired", "when": GOLD}
)
FEW = order_of(*({"template": "absence", "event": name, "count": 2} for name in ("assigned", "closed", "repaired")),
               {"template": "exactly", "event": "opened", "count": 1})  # fmt: skip

ROWS = st.dictionaries(
    st.lists(st.sampled_from(MAP.domain), max_size=9).map(lambda events: (MAP.start, *events)),
    st.integers(1, 50),
    max_size=40,
)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return small_artifact(tmp_path_factory.mktemp("packed"), setting="sampled")


@given(ROWS, st.sampled_from([FREE, CLOSED_ONCE, BY_CONTRACT, FEW]), st.integers(2, 12))
@settings(max_examples=60, deadline=None)
def test_prefixes_are_distinct_permitted_and_within_bounds_and_the_same_in_whatever_order_they_come(
    seen, order, longest
):
    chosen = choose_prefixes(seen, order, longest, least=40)
    assert chosen == choose_prefixes(dict(reversed(seen.items())), order, longest, least=40)
    keys = [(one.row, tuple(one.attributes.items())) for one in chosen]
    assert len(set(keys)) == len(keys)
    for one in chosen:
        automaton = order.automaton(one.attributes)
        assert 1 <= len(one.row) <= longest
        assert one.row[0] == MAP.start
        assert automaton.state_after(one.row[1:]) == one.stratum.state >= 0
        assert one.stratum.seen == seen.get(one.row, 0)
    assert (MAP.start,) in {one.row for one in chosen}
    for automaton in order.automata().values():
        lengths = {len(one.row) for one in chosen if order.automaton(one.attributes) is automaton}
        assert max(lengths) == longest or order is FEW


def test_enough_prefixes_are_made_up_where_few_were_seen_and_seen_ones_are_all_kept():
    chosen = choose_prefixes(SEEN, FREE, 20)
    assert len(chosen) == 256
    assert SEEN.items() <= {one.row: one.stratum.seen for one in chosen}.items()
    assert max(len(one.row) for one in chosen) == 20


def test_an_order_that_permits_few_sequences_gives_all_there_are():
    chosen = choose_prefixes({}, order_of({"template": "init", "event": "opened"}, *(
        {"template": "absence", "event": name, "count": 1} for name in ("assigned", "closed", "repaired")
    ), {"template": "absence", "event": "opened", "count": 3}), 20)  # fmt: skip
    opened = MAP.events["opened"]
    assert [one.row for one in chosen] == [(1,), (1, opened), (1, opened, opened)]


def test_bands_of_length_states_and_rare_prefixes_get_their_share_beside_the_frequent_many():
    crowd = {(1, a, b, c, d): 100 for a in (3, 4, 5, 6) for b in (3, 5, 6) for c in (3, 5, 6) for d in (3, 5, 6)}
    rare = {(1, 3, 3, 3, 3, 3, 3, 3, 3, number): 1 for number in (3, 5, 6)}
    once = {(1, 5, 5, 5, 4): 1}
    chosen = {one.row for one in choose_prefixes({**crowd, **rare, **once}, CLOSED_ONCE, 12, least=24)}
    assert rare.keys() <= chosen
    assert once.keys() <= chosen
    assert len(chosen & crowd.keys()) >= 10


def test_every_kind_of_session_has_its_own_rules_and_a_prefix_is_never_put_under_rules_that_forbid_it():
    seen = {(1, 5, 6): 5, (1, 5, 3): 5, (1, 5, 4): 5, (1, 3): 5}  # 6 is forbidden to gold, 3 opens no session at all
    chosen = choose_prefixes(seen, BY_CONTRACT, 10)
    count = Counter(tuple(one.attributes.items()) for one in chosen)
    assert set(count) == {(), (("contract", "gold"),)}
    assert min(count.values()) > 60
    assert {tuple(one.attributes.items()) for one in chosen if one.row == (1, 5, 6)} == {()}
    assert (1, 3) not in {one.row for one in chosen}


def test_each_answer_is_what_the_full_path_gives_to_the_prefix_alone(packed):
    served, batch = packed.load(), read_fixed_batch(packed)
    assert len(batch.prefixes) == len(batch.answers) == len(batch.strata) == len(batch.attributes) == 256
    for row in (0, 1, 7, 100, 254, 255):
        prefix, answer = batch.prefixes[row], batch.answers[row]
        automaton = served.order.automaton(batch.attributes[row])
        found = generate(
            served.decoder, [prefix], packed.setting, event_map=MAP, automata=[automaton], max_new=3, cached=False
        )[0][0]
        assert (found.events, found.stop, found.forced, found.score) == (
            answer.events, answer.stop, answer.forced, answer.score,
        )  # fmt: skip
        events = torch.tensor([prefix])
        logits = served.decoder.full(events, torch.ones_like(events, dtype=torch.bool))[0, -1]
        assert torch.equal(logits, batch.logits[row])


def test_a_person_can_read_an_answer_beside_what_it_answers(packed):
    document = json.loads((packed.folder / "answers.json").read_bytes())
    assert (document["setting"], document["path"]) == ("sampled", "full prefix")
    batch = read_fixed_batch(packed)
    assert [tuple(row["prefix"]) for row in document["rows"]] == list(batch.prefixes)


@pytest.fixture
def folder(packed, tmp_path):
    shutil.copytree(packed.folder, tmp_path / "artifact")
    return tmp_path / "artifact"


@pytest.mark.parametrize(
    "change",
    [
        put("format", 2),
        put("setting", "greedy"),
        put("rows", []),
        put("rows", 0, "prefix", [1, 3]),
        put("rows", 0, "events", [99]),
        put("rows", 0, "events", [3.0]),
        put("rows", 0, "stop", "tired"),
        put("rows", 0, "score", None),
        put("rows", 0, "score", 10**400),
        put("rows", 0, "forced", 0),
        put("rows", 0, "attributes", {"contract": 1}),
        put("rows", 0, "seen", -1),
        lambda document: document["rows"].pop(),
        lambda document: document["rows"][3].pop("stop"),
        lambda document: document.pop("rows"),
    ],
)
def test_answers_without_sense_are_refused_although_their_digest_is_listed(folder, change):
    document = json.loads((folder / "answers.json").read_bytes())
    change(document)
    replaced(folder, "answers.json", json.dumps(document).encode())
    with pytest.raises(ArtifactError):
        read_fixed_batch(open_artifact(folder))


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b"[]"])
def test_answers_that_are_no_document_are_refused(folder, content):
    replaced(folder, "answers.json", content)
    with pytest.raises(ArtifactError):
        read_fixed_batch(open_artifact(folder))


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.pop("valid"),
        lambda t: t.update(extra=t["logits"]),
        lambda t: t.update(events=t["events"][:-1]),
        lambda t: t.update(logits=t["logits"][:-1]),
        lambda t: t.update(logits=t["logits"][:, :3]),
        lambda t: t.update(valid=t["valid"][:, :-1]),
        lambda t: t.update(events=t["events"] + 1),
        lambda t: t.update(events=t["events"].double()),
        lambda t: t["events"][5].__setitem__(0, 3),
        lambda t: t["valid"][5].fill_(value=False),
        lambda t: t.update({name: tensor[:0] for name, tensor in t.items()}),
    ],
)
def test_tensors_that_do_not_fit_each_other_are_refused_although_their_digest_is_listed(folder, change):
    path = folder / "fixed_batch.safetensors"
    tensors = read_tensors(path.read_bytes(), "batch")
    change(tensors)
    replaced(folder, path.name, write_tensors(tensors))
    with pytest.raises((ArtifactError, RevisionError)):
        read_fixed_batch(open_artifact(folder))


def test_a_batch_that_is_swapped_after_opening_is_not_replayed(folder):
    artifact = open_artifact(folder)
    path = folder / "fixed_batch.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x02")
    with pytest.raises(IntegrityError):
        read_fixed_batch(artifact)
