"""Makes what the demo ships with: its event log, and two revisions that differ in how their cached path looks back."""

from __future__ import annotations

import gzip
import shutil
import tempfile
from pathlib import Path

from auditlib.decoders.revision import write_revision
from auditlib.decoders.training_plan import TrainingPlan
from auditlib.demo.build import fill_store
from auditlib.demo.log import demo_log
from auditlib.demo.places import FAULTY, SHIPPED, SOUND
from auditlib.files import write_whole
from auditlib.progress import Progress, part, silent
from auditlib.runs.train import TrainRequest, train_revision

WINDOW = 6
"""Events that the faulty revision's cached path looks back; longer sessions show the difference."""


def rebuild(progress: Progress = silent) -> None:
    """Write the log and both revisions anew. The log is the same bytes every time; weights are on one machine."""
    # Without a time in the header, as the same log must be the same bytes.
    write_whole(SHIPPED / "sessions.csv.gz", gzip.compress(demo_log(), mtime=0))
    revisions = SHIPPED / "revisions"
    shutil.rmtree(revisions, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "sessions.duckdb"
        fill_store(store)
        request = TrainRequest(
            store,
            SHIPPED / "event_order.json",
            revisions / SOUND,
            plan=TrainingPlan(seed=1),
            config={"width": 32, "layers": 2, "heads": 4, "context_length": 64},
        )
        sound = train_revision(request, part(progress, 0.0, 1.0, "training")).revision
    listed = {sound.manifest.event_map, sound.manifest.event_order}
    write_revision(
        revisions / FAULTY,
        name=FAULTY,
        decoder=sound.manifest.decoder,
        config={**sound.manifest.config, "cached_attention_window": WINDOW},
        event_map=sound.event_map,
        event_order=sound.event_order,
        files={name: sound.read(name) for name in sound.manifest.files if name not in listed},
    )
