"""The demo: a made-up service desk, its event log, and two revisions of a decoder for it."""
