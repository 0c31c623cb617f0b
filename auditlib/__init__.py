"""Prefixgate: decides whether an incremental (cached) service-event decoder may be released."""

__version__ = "0.1.0"
