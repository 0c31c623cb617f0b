"""One small tree of errors. A message says what is wrong, where, why, and what to do now.

`exit_code` is what the command line returns for the error (contract 2).
"""

from __future__ import annotations


class PrefixgateError(Exception):
    """Root of every error raised on purpose."""

    exit_code = 4  # a fault of our own, where no subclass blames the input or a signature


class InputError(PrefixgateError):
    """Wrong use or bad input; nothing was changed."""

    exit_code = 2


class LogError(InputError):
    """An event log cannot be read as asked."""


class StoreError(InputError):
    """A session store is missing, damaged or lacks what was asked of it."""


class EventMapError(InputError):
    """Names and ids of events do not fit."""


class OrderError(InputError):
    """Event-order rules that are malformed, contradictory or never let a session end."""


class RevisionError(InputError):
    """A revision folder that is malformed, unsafe or does not fit what it is used for."""


class DecoderError(InputError):
    """A decoder was asked for something that it cannot do."""


class ContextExceededError(DecoderError):
    """More events than the context length holds."""


class PolicyError(InputError):
    """A policy file or decoding setting that makes no sense."""


class RunError(InputError):
    """A run folder that is missing, unfinished or damaged."""


class ArtifactError(InputError):
    """An artifact folder that is malformed, or cannot be packaged or served as asked."""


class RequestRefusedError(InputError):
    """A request that a serving artifact does not take; `code` says why in a word or two, for machines."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class EngineFailedError(PrefixgateError):
    """A serving engine cannot answer any more; another path must."""


class RequestFailedError(PrefixgateError):
    """A request that neither the artifact nor its fallback could answer; `code` says why in a word or two."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class KeyFileError(InputError):
    """A key or trust file that cannot be read or used."""


class CacheRejectedError(PrefixgateError):
    """A cache does not belong to the request it was offered to; `field` names what differs."""

    exit_code = 2

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class IntegrityError(PrefixgateError):
    """A signature, digest or age that does not hold."""

    exit_code = 3


class VerdictError(IntegrityError):
    """A verdict that does not verify, with the reason."""


class CancelledError(PrefixgateError):
    """Work stopped because somebody asked for it."""

    exit_code = 2
