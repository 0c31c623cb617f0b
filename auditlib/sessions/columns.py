"""Which column of a log holds what: named by the user, else guessed from the names that logs usually carry."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from auditlib.errors import LogError
from auditlib.sessions.manifest import ColumnMapping

ROLES = ("session", "event", "time", "customer", "asset", "attributes")
_REQUIRED = ("session", "event", "time")
# Names that exporters give, the surest first: pm4py and XES, ServiceNow (table and audit exports), Jira, Tax et al.
# Compared without case, spaces, underscores and dashes. Several columns joined by + make one event.
_USUAL: dict[str, tuple[str, ...]] = {
    "session": (
        "case:concept:name", "number", "documentkey", "incident number", "sr number", "issue key", "key", "case id",
        "case", "ticket id", "ticket number", "ticket", "incident id", "incident", "session id", "session", "trace id",
    ),
    "event": (
        "concept:name", "incident_state", "fieldname+newvalue", "field+to string", "activity", "activity id",
        "activity name", "event name", "event", "state", "status", "task", "action",
    ),
    "time": (
        "time:timestamp", "sys_updated_at", "sys_updated_on", "sys_created_on", "complete timestamp", "timestamp",
        "event time", "updated", "updated at", "updated on", "change date", "created", "time", "date", "start time",
    ),
    "customer": (
        "customer", "case:customer", "customer id", "caller_id", "caller", "account", "company", "organization",
        "client", "reporter",
    ),
    "asset": (
        "cmdb_ci", "asset", "case:asset", "asset id", "configuration item", "ci name", "ci", "product", "case:product",
        "device", "component", "component/s",
    ),
}  # fmt: skip


def resolve(
    columns: Sequence[str], given: ColumnMapping | Mapping[str, Any] | None, *, complete: bool = True
) -> tuple[ColumnMapping, tuple[str, ...]]:
    """The whole mapping, and the roles that were guessed. Columns that are named win; "" says that a role has none.

    LogError for unknown roles, for columns that the log does not have (unless later rows may bring them), and when
    session, event or time is neither named nor guessed.
    """
    named = _named(columns, given)
    # A role named as "" has no column, and is not guessed either.
    guessed = {role: found for role in _USUAL if role not in named and (found := _guess(columns, role))}
    chosen: dict[str, tuple[str, ...]] = dict.fromkeys(ROLES, ()) | guessed | named
    missing = [role for role in _REQUIRED if not chosen[role]]
    if missing:
        options = ", ".join(f"--{role}" for role in missing)
        raise LogError(
            f"no column has a usual name for {', '.join(missing)}; name it with {options}: {_shown(columns)}"
        )
    absent = [name for names in chosen.values() for name in names if name not in columns]
    if absent and complete:
        raise LogError(f"the log has no column {', '.join(map(repr, absent))}; its columns are {_shown(columns)}")
    singles = {role: (chosen[role] or (None,))[0] for role in ("customer", "asset")}
    mapping = ColumnMapping(
        session=chosen["session"][0],
        event=chosen["event"],
        time=chosen["time"][0],
        customer=singles["customer"],
        asset=singles["asset"],
        attributes=chosen["attributes"],
    )
    return mapping, tuple(role for role in ROLES if role in guessed)


def _named(columns: Sequence[str], given: ColumnMapping | Mapping[str, Any] | None) -> dict[str, tuple[str, ...]]:
    document = given.to_dict() if isinstance(given, ColumnMapping) else dict(given or {})
    unknown = sorted(set(document) - set(ROLES))
    if unknown:
        raise LogError(
            f"unknown role {', '.join(map(repr, unknown))} in the column mapping; roles are {', '.join(ROLES)}"
        )
    named = {role: _parts(columns, role, value) for role, value in document.items() if value is not None}
    for role, names in named.items():
        if len(names) > 1 and role not in ("event", "attributes"):
            raise LogError(f"{role} is one column, not {', '.join(map(repr, names))}; only an event may be several")
    if given is not None and isinstance(given, ColumnMapping):
        named |= {role: () for role in ROLES if role not in named}
    return named


def _parts(columns: Sequence[str], role: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, str):
        return tuple(str(name) for name in value)
    # A column whose own name holds a + is meant as it stands.
    if role == "event" and value not in columns:
        return tuple(part for part in value.split("+") if part)
    return (value,) if value else ()


def _guess(columns: Sequence[str], role: str) -> tuple[str, ...]:
    by_name = {_plain(column): column for column in reversed(columns)}
    for usual in _USUAL[role]:
        parts = [_plain(part) for part in usual.split("+")]
        if all(part in by_name for part in parts):
            return tuple(by_name[part] for part in parts)
    return ()


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name.strip().lower())


def _shown(columns: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:60]) for name in columns[:60])
    return shown + (f" and {len(columns) - 60} more" if len(columns) > 60 else "")
