from __future__ import annotations

import pytest

from auditlib.runs.package import PackageRequest, package_run
from tests.packed import failing, judged_run
from tests.small_gpt import write_small_revision


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    """Folders `earlier`, `artifact` (falls back to it), `idle` (serves nothing, falls back to it) and `lone`."""
    root = tmp_path_factory.mktemp("shelf")
    old = write_small_revision(root / "old", seed=3)
    run = judged_run(root / "runs", old, name="20261130T110000000Z-0a1b2c3d")
    package_run(PackageRequest(run.folder, root / "earlier", root / "old"))
    new = write_small_revision(root / "new")
    run = judged_run(root / "runs", new)
    package_run(PackageRequest(run.folder, root / "artifact", root / "new", fallback=root / "earlier"))
    package_run(PackageRequest(run.folder, root / "lone", root / "new"))
    found = failing("causality", "truncation in float64")
    bad = judged_run(root / "runs", new, found, name="20261130T130000000Z-0a1b2c3d")
    package_run(PackageRequest(bad.folder, root / "idle", root / "new", fallback=root / "earlier"))
    return root
