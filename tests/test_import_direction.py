"""The direction of flow, read from the code itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LOWER_ROOMS = {
    "errors": set(),
    "progress": set(),
    "numbers": set(),
    "files": {"errors"},
    "events": {"errors", "files", "numbers", "progress"},
    "sessions": {"errors", "files", "numbers", "progress", "events"},
    "decoders": {"errors", "files", "numbers", "progress", "events"},
    "decoding": {"errors", "files", "numbers", "progress", "events", "decoders"},
    "serving": {"errors", "files", "numbers", "progress", "events", "decoders", "decoding"},
    "audits": {"errors", "files", "numbers", "progress", "events", "sessions", "decoders", "decoding", "serving"},
    "release": {"errors", "files", "numbers", "progress"},
}
LOWER_ROOMS["runs"] = {*LOWER_ROOMS["audits"], "audits", "release"}
LOWER_ROOMS["views"] = {*LOWER_ROOMS["runs"], "runs"}
LOWER_ROOMS["demo"] = {*LOWER_ROOMS["runs"], "runs"}
LOWER_ROOMS["web"] = {*LOWER_ROOMS["views"], "views", "demo"}
LOWER_ROOMS["cli"] = {*LOWER_ROOMS["views"], "views", "demo"}
LOWER_ROOMS["__main__"] = {"cli"}
LOWER_ROOMS["__init__"] = set()

HOMES_OF_LIBRARIES = {
    "duckdb": {"sessions", "runs"},
    "torch": {"decoders", "decoding", "serving", "audits"},
    "plotly": {"views"},
    "streamlit": {"web", "pages", "app"},
    "starlette": {"serving", "web"},
    "uvicorn": {"serving"},
}


def room_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return (
        relative.parts[1].removesuffix(".py")
        if relative.parts[0] == "auditlib"
        else relative.parts[0].removesuffix(".py")
    )


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            names.add(node.module or "")
            if node.module == "auditlib":
                names |= {f"auditlib.{alias.name}" for alias in node.names}
    return names


SOURCES = sorted([*(ROOT / "auditlib").rglob("*.py"), *(ROOT / "pages").glob("*.py"), ROOT / "app.py"])


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_imports_only_from_rooms_below_it_and_libraries_only_where_they_live(path):
    room = room_of(path)
    allowed = LOWER_ROOMS.get(room, set(LOWER_ROOMS))  # app and pages stand on everything
    for name in imports_of(path):
        top, _, rest = name.partition(".")
        if top == "auditlib" and rest and rest != "__version__":
            target = rest.partition(".")[0]
            assert target == room or target in allowed, f"{path}: {room} may not import {target}"
        if top in HOMES_OF_LIBRARIES:
            assert room in HOMES_OF_LIBRARIES[top], f"{path}: {top} does not belong in {room}"


def test_the_direction_test_sees_every_room():
    assert {room_of(path) for path in SOURCES} <= {*LOWER_ROOMS, "pages", "app"}
