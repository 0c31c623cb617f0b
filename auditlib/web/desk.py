"""The reviewer's desk: keys, a run's verdict and its signatures. No Streamlit here: what matters is checked here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from auditlib.errors import InputError, KeyFileError, PrefixgateError
from auditlib.release.bundles import bundles_of
from auditlib.release.envelope import read_envelope
from auditlib.release.identity import Identity, identity_from
from auditlib.release.keys import key_id, load_key
from auditlib.release.reading import parse_statement
from auditlib.release.refusals import RefusedError
from auditlib.release.settling import settle
from auditlib.release.signing import new_key
from auditlib.release.trust import Trust, load_trust, read_entry
from auditlib.release.verdict import SignedVerdict, VerifiedVerdict, sign_run, verify_verdict
from auditlib.runs.folder import Run, open_run
from auditlib.web.catalogue import DamagedRun
from auditlib.web.reviewer import Reviewer
from auditlib.web.roster import Place, missing, note, roster, standing
from auditlib.web.seen import Seen, seen_of
from auditlib.web.settings import Settings
from auditlib.web.shelf import Bound, artifacts, named_in, with_newest_evidence

_REQUEST = ".request.json"


@dataclass(frozen=True, slots=True)
class Desk:
    """Where one place keeps its reviewers' keys, its trust file and its verdicts.

    `reviewer` is whoever signed in; None stands for the one person of a dashboard where nobody signs in.
    """

    settings: Settings
    reviewer: Reviewer | None = None

    def trust(self) -> Trust | None:
        """The trust file; None before the first key is made. KeyFileError when it is malformed."""
        return load_trust(self.settings.trust) if self.settings.trust.exists() else None

    def keys(self) -> dict[str, Path]:
        """Key files by name."""
        folder = self.settings.keys
        return {file.stem: file for file in sorted(folder.glob("*.pem"))} if folder.is_dir() else {}

    def make_key(self, person: str, passphrase: str, again: str) -> str:
        """Id of a new encrypted key for `person`.

        Where nobody signs in, the first key enters the trust file. All others only ask for it: who may sign is decided
        by whoever keeps that file, not by whoever opens the page. InputError for passphrases that differ or are short.
        """
        if passphrase != again:
            raise InputError("the two passphrases differ; nothing was written")
        if len(passphrase) < 8:
            raise InputError("the passphrase has fewer than 8 characters; take a longer one")
        stem = re.sub(r"[^a-z0-9]+", "-", person.casefold()).strip("-")[:60]
        if not stem:
            raise InputError("a key needs the name of the person it belongs to, in Latin letters or digits")
        first = self.reviewer is None and not self.settings.trust.exists()
        out = self.settings.keys / f"{stem}.pem"
        trust, request = (self.settings.trust, None) if first else (None, out.with_name(f"{stem}{_REQUEST}"))
        who = self.reviewer.identity if self.reviewer else None
        with _without_folder(out):
            return new_key(out, person, passphrase.encode(), trust, identity=who, request=request)

    def may_sign(self, now: datetime) -> bool:
        """Whether the trust file lets whoever is here sign: a key in it is theirs and counts now.

        Where nobody signs in, holding a key and its passphrase is all that is asked for.
        """
        trust = self.trust()
        if self.reviewer is None:
            return True
        mine = (key for key in (trust.keys.values() if trust else ()) if key.identity == self.reviewer.identity)
        return any(not standing(key, now) for key in mine)

    def requests(self) -> tuple[Path, ...]:
        """Files in which whoever is signed in asks for a key of theirs to be trusted."""
        if self.reviewer is None:
            return ()
        found = sorted(self.settings.keys.glob(f"*{_REQUEST}"))
        return tuple(path for path in found if _asks(path) == self.reviewer.identity)

    def require_fresh(self, now: datetime) -> None:
        """Refuse a login that is too old to sign with: StaleLoginError. Where nobody signs in there is none."""
        if self.reviewer is not None:
            self.reviewer.require_fresh(now, self.settings.fresh_login)

    def verdict_file(self, run: Run | DamagedRun) -> Path:
        """Where the verdict of a run is, or will be."""
        return self.settings.verdicts / f"{run.id}.dsse.json"

    def bound(self, run: Run) -> Bound | None:
        """The artifact and evidence that the run's verdict on file names; None where it names none, or none is here."""
        file = self.verdict_file(run)
        return self._named(file.read_bytes()) if file.exists() else None

    def offered(self, run: Run) -> tuple[Bound, ...]:
        """Artifacts that were packaged of this run, each with the newest evidence on it."""
        root = self.settings.artifacts
        return tuple(with_newest_evidence(root, one) for one in artifacts(root) if one.run == run.id)

    def may_approve(self, run: Run, bound: Bound | None) -> bool:
        """Whether the gate lets the run through, with the evidence that would be signed with it."""
        found = () if bound is None else tuple(bound.evidence.values())
        return settle(run.report, run.manifest["policy"]["document"], found).approved

    def seen(self, run: Run, bound: Bound | None) -> Seen:
        """What somebody who signs now would sign for."""
        return seen_of(run, bound, self.verdict_file(run), may_approve=self.may_approve(run, bound))

    def sign(
        self,
        run: Run,
        key: str,
        passphrase: str,
        decision: str,
        comment: str,
        bound: Bound | None = None,
        seen: Seen | None = None,
    ) -> SignedVerdict:
        """Sign the run's verdict, or add a signature to the one that is there.

        The run is opened and verified again: what is signed is what lies on the disk now, not what a page remembers.
        `bound` is named in a new verdict; a signature that is added goes to what the verdict names already. With `seen`
        it is given only for that: InputError when anything has changed since it was shown.
        """
        keys = self.keys()
        if key not in keys:
            raise InputError(f"there is no key {key!r} here any more; choose another")
        self.require_fresh(datetime.now(UTC))
        with _without_folder(keys[key]):
            self._require_own(key_id(load_key(keys[key], passphrase.encode()).public_key()))
        # The page may have been open for days.
        fresh = open_run(run.folder)
        fresh.verify()
        out = self.verdict_file(run)
        again = out.exists()
        bound = self.bound(run) if again else bound
        if seen is not None:
            seen.require(self.seen(fresh, bound))
        signed = sign_run(
            fresh.folder,
            fresh.report,
            fresh.manifest,
            keys[key],
            passphrase.encode(),
            decision,
            comment,
            out,
            append=again,
            trust=self.settings.trust,
            artifact=None if bound is None else bound.artifact.folder,
            evidence=() if bound is None else tuple(bound.evidence),
            ledger=self.settings.verdicts / "ledger.jsonl",
        )
        note(out, signed.keyid, datetime.now(UTC))
        return signed

    def check(self, envelope: bytes, run: Run | None = None, revision: Path | None = None) -> VerifiedVerdict:
        """A verdict held against the trust file, and against the run's report and the revision's folder when given."""
        if self.trust() is None:
            raise InputError(f"there is no trust file at {self.settings.trust}; make a key, or name one with --trust")
        report = run.folder / "report.json" if run else None
        bound = self._named(envelope) if run else None
        return verify_verdict(
            envelope,
            self.settings.trust,
            report=report,
            revision=revision,
            artifact=None if bound is None else bound.artifact.folder,
            evidence=() if bound is None else tuple(bound.evidence),
        )

    def _named(self, envelope: bytes) -> Bound | None:
        """What an envelope names of the artifacts here. It only says where to look: what is there is verified then."""
        return named_in(self.settings.artifacts, parse_statement(read_envelope(envelope).payload).subjects)

    def roster(self, run: Run | DamagedRun, now: datetime) -> tuple[Place, ...]:
        """Everybody whose signature the trust file counts, and who of them has signed the run's verdict."""
        trust = self.trust()
        return () if trust is None else roster(trust, self.verdict_file(run), now)

    def all_signed(self, run: Run, now: datetime) -> bool:
        """Whether nobody is left here who could sign the run's verdict.

        Of whoever is signed in, the account's own key; where nobody signs in, all whose signature counts.
        """
        trust = self.trust()
        places = () if trust is None else roster(trust, self.verdict_file(run), now)
        if self.reviewer is not None and trust is not None:
            account = self.reviewer.identity
            places = tuple(place for place in places if trust.keys[place.keyid].identity == account)
        return any(place.signed for place in places) and not missing(places)

    def digest(self, run: Run) -> str | None:
        """Digest of the run's signed statement, None while it is unsigned or does not verify."""
        file = self.verdict_file(run)
        try:
            return self.check(file.read_bytes(), run).statement.digest if file.exists() else None
        except PrefixgateError:
            return None

    def bundles(self, run: Run) -> dict[str, bytes]:
        """Sigstore bundles of the run's verdict, one a reviewer, by the person's name or else the key id."""
        trust = self.trust()
        found = bundles_of(self.verdict_file(run).read_bytes())
        people = {keyid: key.person for keyid, key in trust.keys.items()} if trust else {}
        return {people.get(keyid, keyid[:16]): bundle for keyid, bundle in found.items()}

    def _require_own(self, keyid: str) -> None:
        """Refuse whoever is signed in when the trust file gives the key to another account."""
        if self.reviewer is None:
            return
        trust = self.trust()
        listed = trust.keys.get(keyid) if trust else None
        if listed is None or listed.identity != self.reviewer.identity:
            raise InputError(
                f"the trust file does not give this key to the account that you are signed in with, "
                f"{self.reviewer.identity.subject} of {self.reviewer.identity.issuer}; sign with your own key"
            )


def _asks(path: Path) -> Identity | None:
    """The account that a request names, None for a file that is no request."""
    try:
        return identity_from(read_entry(path).get("identity"))
    except (PrefixgateError, ValueError):
        return None


@contextmanager
def _without_folder(key: Path) -> Iterator[None]:
    """Tell what is wrong with a key file by the key's name: where the server keeps it is nobody's business."""
    try:
        yield
    except KeyFileError as problem:
        words = str(problem).replace(str(key), f"the key {key.stem}").replace(f"{key.parent}/", "")
        raise KeyFileError(words) from problem


def explain(problem: PrefixgateError) -> str:
    """What went wrong, as one sentence for people."""
    text = plainly(problem)
    return text[:1].upper() + text[1:]


def plainly(problem: PrefixgateError) -> str:
    """What went wrong, without the word that programs know a refusal by: the sentence after it says the same."""
    text = str(problem)
    return text.replace(f"{problem.reason}: ", "") if isinstance(problem, RefusedError) else text
