"""Counters, gauges and histograms of an open service in the Prometheus text format, version 0.0.4.

Rules: https://prometheus.io/docs/instrumenting/exposition_formats/. Written out here because all numbers exist already
in the services; a client library would keep a second count of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from auditlib.serving.opening import OpenService
from auditlib.serving.service import Service
from auditlib.serving.tally import BOUNDS, Histogram

_PREFIX = "prefixgate_"
_STATUS = {"ok": 0, "degraded": 1, "failed": 2}

Samples = Iterable[tuple[Mapping[str, object], float]]


def exposition(opened: OpenService, responses: Mapping[int, int], refused: Mapping[str, int]) -> str:
    """All metrics. `responses` by HTTP status; `refused` by code, for what was refused before any arm saw it."""
    return "\n".join([*_of_http(responses, refused), *_of_arms(opened), *_of_log(opened), *_latencies(opened), ""])


def _of_http(responses: Mapping[int, int], refused: Mapping[str, int]) -> Iterator[str]:
    statuses = [({"status": status}, count) for status, count in responses.items()]
    yield from _metric("http_responses_total", "counter", "Responses by HTTP status", statuses)
    codes = [({"code": code}, count) for code, count in refused.items()]
    yield from _metric("http_refused_total", "counter", "Requests refused before they had a row in the log", codes)


def _of_arms(opened: OpenService) -> Iterator[str]:
    services = opened.services
    outcomes = [({"arm": arm, "outcome": code}, count) for (arm, code), count in opened.keeper.tally.outcomes.items()]
    yield from _metric("requests_total", "counter", "Rows of the log: answered, or the code of the error", outcomes)
    for name, label, help_text in (
        ("answered", "path", "Answers by the path that gave them"),
        ("refused", "code", "Requests that the bounds do not hold"),
        ("failed", "code", "Requests or comparisons without an answer that holds"),
        ("fallbacks", "reason", "Times that a path gave no answer that holds, with the path and the reason"),
        ("stops", "stop", "Answers by the reason why they end"),
    ):
        found = [
            ({"arm": arm, label: key}, count)
            for arm, service in services.items()
            for key, count in getattr(service.counts, name).items()
        ]
        yield from _metric(f"{name}_total", "counter", help_text, found)
    for name, (kind, help_text) in _NUMBERS.items():
        samples = [({"arm": arm}, _numbers(service)[name]) for arm, service in services.items()]
        yield from _metric(name, kind, help_text, samples)


_NUMBERS = {
    "status": ("gauge", "0 as packaged, 1 by a fallback, 2 nothing answers"),
    "events_total": ("counter", "New events given, ends included"),
    "compared_total": ("counter", "Answers that were compared with the full prefix path"),
    "mismatches_total": ("counter", "Compared answers that differ from the full prefix path"),
    "rejected_caches_total": ("counter", "Caches that did not belong to the request they were offered to"),
    "prefix_cache_joined_total": ("counter", "Requests that joined a cached batch"),
    "prefix_cache_hits_total": ("counter", "Requests that continued a prefix that was kept"),
    "prefix_cache_read_events_total": ("counter", "Events that were read for joining requests"),
    "prefix_cache_spared_events_total": ("counter", "Events that a kept prefix had read before"),
    "waiting": ("gauge", "Requests in the queue, and not yet in a batch"),
    "in_flight": ("gauge", "Requests that wait for their answer"),
    "cache_peak_bytes": ("gauge", "Most bytes of keys and values held at once so far"),
}


def _numbers(service: Service) -> dict[str, float]:
    engines, counts = service.engines, service.counts
    return {
        "status": _STATUS[service.health()["status"]],
        "events_total": counts.events,
        "compared_total": counts.compared,
        "mismatches_total": counts.mismatches,
        "rejected_caches_total": sum(one.rejection is not None for one in engines),
        "prefix_cache_joined_total": sum(one.uses.joined for one in engines),
        "prefix_cache_hits_total": sum(one.uses.continued for one in engines),
        "prefix_cache_read_events_total": sum(one.uses.events_read for one in engines),
        "prefix_cache_spared_events_total": sum(one.uses.events_spared for one in engines),
        "waiting": service.waiting,
        "in_flight": service.calls,
        "cache_peak_bytes": sum(one.peak_bytes for one in engines),
    }


def _of_log(opened: OpenService) -> Iterator[str]:
    keeper = opened.keeper
    yield from _metric("log_rows_total", "counter", "Rows written to the request log", [({}, keeper.written)])
    yield from _metric("log_rows_lost_total", "counter", "Rows that could not be written", [({}, keeper.lost)])


def _latencies(opened: OpenService) -> Iterator[str]:
    tally = opened.keeper.tally
    yield from _histogram("first_event_seconds", "From arrival to the first new event", tally.first_event)
    yield from _histogram("request_seconds", "From arrival to the whole answer", tally.whole)


def _histogram(name: str, help_text: str, found: Mapping[str, Histogram]) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {help_text}"
    yield f"# TYPE {_PREFIX}{name} histogram"
    for arm, histogram in found.items():
        bounds = [*map(str, BOUNDS), "+Inf"]
        # The format counts up: each bucket holds all that is faster as well.
        for bound, count in zip(bounds, accumulate(histogram.buckets), strict=True):
            yield _sample(f"{name}_bucket", {"arm": arm, "le": bound}, count)
        yield _sample(f"{name}_sum", {"arm": arm}, histogram.total)
        yield _sample(f"{name}_count", {"arm": arm}, histogram.count)


def _metric(name: str, kind: str, help_text: str, samples: Samples) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {help_text}"
    yield f"# TYPE {_PREFIX}{name} {kind}"
    for labels, value in samples:
        yield _sample(name, labels, value)


def _sample(name: str, labels: Mapping[str, object], value: float) -> str:
    """One line. In a label's value backslash, quote and line feed are escaped, as the format asks."""
    quoted = [f'{key}="{_escaped(str(text))}"' for key, text in labels.items()]
    return f"{_PREFIX}{name}{'{' + ','.join(quoted) + '}' if quoted else ''} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
