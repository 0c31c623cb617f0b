"""How many sampled sequences end because the decoder wants them to: drawn often enough that chance does not decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from auditlib.audits.emitted import Emitted, recount
from auditlib.audits.policy_runs import Runs
from auditlib.audits.prefix_set import PrefixCase
from auditlib.decoding.policies import Setting

# One end in thirty sequences is missed by a few dozen of them every third time. After five hundred, a share of one in
# a hundred is told from none at all.
_ENOUGH_ENDS, _ENOUGH_SEQUENCES = 8, 512
_OTHER_SEED = 1_000_003


def not_ended_by_choice(
    runs: Runs, setting: Setting, cases: Sequence[PrefixCase], emitted: Sequence[Emitted]
) -> tuple[float, int]:
    """Share of sequences that only the budget ended, or nothing, and how many sequences it rests on.

    `emitted` come first. Where few of them ended by choice, a sampled setting is drawn again with other seeds.
    """
    count, ended, again = len(emitted), sum(one.chosen_end for one in emitted), 0
    while setting.kind == "sampled" and count and ended < _ENOUGH_ENDS and count < _ENOUGH_SEQUENCES:
        again += 1
        more = _drawn(runs, replace(setting, seed=setting.seed + again * _OTHER_SEED), cases)
        if not more:
            break
        count, ended = count + len(more), ended + sum(one.chosen_end for one in more)
    return (count - ended) / max(1, count), count


def _drawn(runs: Runs, setting: Setting, cases: Sequence[PrefixCase]) -> list[Emitted]:
    ids, bounds = runs.subject.event_map, runs.bounds(setting)
    return [
        recount(case, number, one, ids, bounds)
        for case, hypotheses in zip(cases, runs.run(setting, cases), strict=True)
        for number, one in enumerate(hypotheses)
    ]
