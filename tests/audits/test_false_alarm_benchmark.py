"""The sweep for false alarms must be able to find one, and finds none on a sound decoder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from auditlib.audits.cache_parity import CACHE_PARITY
from auditlib.audits.faults.wrapping import Planted
from benchmarks import false_alarms


class Forgets(Planted):
    """A step of the cached path that is a little off."""

    def extend(self, events, valid, cache):
        logits, cache = super().extend(events, valid, cache)
        return logits + 0.01, cache


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    revision, parameters = false_alarms.MAKERS["event_gpt small"].make(tmp_path_factory.mktemp("made") / "one", 3, True)
    assert parameters == 25_696
    return false_alarms.subject_of(revision, "float32", 3)


def alarms(subject, monkeypatch):
    monkeypatch.setattr(false_alarms, "AUDITS", (CACHE_PARITY,))
    line = false_alarms.Line("one", "float32")
    false_alarms.audit(line, subject, "seed 3")
    return line, [words for words in line.alarms if words.split(": ")[1] == "cache parity"]


def test_rows_are_read_in_batches_of_the_seeds_size(subject):
    assert subject.most_rows == false_alarms.BATCHES[3]
    assert set(false_alarms.BATCHES) >= {1, 2, 8, 16, 32, 64}


def test_a_sound_decoder_gives_no_alarm_and_a_faulty_one_does(subject, monkeypatch):
    line, found = alarms(subject, monkeypatch)
    assert found == []
    assert line.checks > 10
    faulty = replace(subject, decoder=Forgets(subject.decoder), load=lambda dtype: Forgets(subject.load(dtype)))
    line, found = alarms(faulty, monkeypatch)
    assert any("cache parity: single events failed" in words for words in found)
    assert f"| {len(line.alarms)} |" in false_alarms.markdown([line])
