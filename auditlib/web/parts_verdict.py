"""Parts of the verdict page: why, who signed, signing, verifying, and the files to take away."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from auditlib.errors import PrefixgateError
from auditlib.release.refusals import RefusedError
from auditlib.release.verdict import SignedVerdict, VerifiedVerdict
from auditlib.runs.folder import Run
from auditlib.views.junit import to_junit
from auditlib.views.markdown import to_markdown
from auditlib.views.report import to_html
from auditlib.views.summary import headline
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import clock, parts_keys, state
from auditlib.web.desk import Desk, explain
from auditlib.web.shelf import Bound
from auditlib.web.text import short

_RUN_ALONE = "the revision and its run alone"


def why(run: Run) -> None:
    """What the gate says of the run, with every reason."""
    words = headline(run.report)
    if run.approved:
        st.success(f"The gate says: {in_markdown(words, 1000)}", icon=":material/check_circle:")
        return
    st.error(f"The gate says: {in_markdown(words, 1000)}", icon=":material/block:")
    because = run.report["decision"].get("because", {})
    proposed = run.report["decision"].get("proposed", ())
    found = [*because.get("cache_acceleration", ())]
    found += chain.from_iterable(because.get("decoding", {}).get(name, ()) for name in proposed)
    reasons = list(dict.fromkeys(found))
    if reasons:
        with st.expander(f"All reasons ({len(reasons)})"):
            for reason in reasons:
                st.text(safe(reason, 300))


def signatures(desk: Desk, here: state.Selection, run: Run) -> None:
    """The verdict that lies beside the run: who signed it, whether it holds, and its files."""
    file = desk.verdict_file(run)
    if not file.exists():
        st.info("UNSIGNED: nobody has signed this run yet.", icon=":material/edit_off:")
        return
    envelope = file.read_bytes()
    try:
        _show(desk.check(envelope, run, here.entry.folder if here.entry else None))
    except RefusedError as problem:
        early = problem.reason == "threshold"
        words = "Not complete yet." if early else "The verdict on file does not hold."
        show, icon = (st.warning, ":material/group:") if early else (st.error, ":material/gpp_bad:")
        show(f"{words} {in_markdown(explain(problem), 1000)}", icon=icon)
    except PrefixgateError as problem:
        st.error(f"The verdict on file does not hold. {in_markdown(explain(problem), 1000)}", icon=":material/gpp_bad:")
    row = st.container(horizontal=True)
    _file(row, "Verdict (DSSE envelope)", envelope, f"{run.id}.dsse.json")
    for person, bundle in desk.bundles(run).items():
        _file(row, f"Sigstore bundle of {person}", bundle, f"{run.id}.{short(person)}.sigstore.json")
    if desk.settings.trust.exists():
        _file(row, "Trust file", desk.settings.trust.read_bytes(), "trust.json")


def people(desk: Desk, run: Run) -> None:
    """How many people must sign, who has, and whose signature is missing."""
    trust = desk.trust()
    if trust is None:
        return
    found = desk.roster(run, datetime.now(UTC))
    counted = {place.holder: place.person for place in found if not place.against}
    signed = {place.holder for place in found if place.signed and not place.against}
    missing = [safe(person, 80) for holder, person in counted.items() if holder not in signed]
    lacking = trust.threshold - len(signed)
    st.text(f"Signed by {len(signed)} of the {_people(trust.threshold)} that the trust file asks for.")
    if lacking > len(missing):
        st.warning("The trust file asks for more people than have a key that counts.", icon=":material/warning:")
    elif lacking > 0:
        st.text(f"Still needed: {lacking} of {', '.join(missing)}.")
    rows = [
        {
            "person": safe(place.person, 80),
            "key": short(place.keyid),
            "signed": "✓ signed" if place.signed else "– not yet",
            "counts": place.against or "yes",
        }
        for place in found
    ]
    st.dataframe(pd.DataFrame(rows), key="people", hide_index=True, alt="Who may sign, and who has")


def _people(count: int) -> str:
    return "1 person" if count == 1 else f"{count} people"


def sign_form(desk: Desk, run: Run) -> None:
    """A reviewer's decision, comment and passphrase; a refusal by the gate cannot be overruled."""
    parts_keys.say_once()
    if not parts_keys.may_sign(desk):
        return
    keys = list(desk.keys())
    if not keys:
        st.text(f"There is no key yet.{'' if desk.reviewer else ' The first one made here starts the trust file.'}")
        parts_keys.key_form(desk)
        return
    again = desk.verdict_file(run).exists()
    offered = {} if again else {bound.artifact.folder.name: bound for bound in desk.offered(run)}
    names = [*reversed(offered), _RUN_ALONE]
    parts_keys.unpack(run, {"key": keys, "artifact": names if offered else []})
    bound = desk.bound(run) if again else offered.get(_choose_artifact(names))
    _say_bound(bound, again=again)
    notice = st.container()
    decisions = ["approve", "refuse"] if desk.may_approve(run, bound) else ["refuse"]
    if st.session_state.get("sign-decision", decisions[0]) not in decisions:
        del st.session_state["sign-decision"]
    # Cleared on submit, so that no passphrase stays behind in the page.
    with st.form("sign", clear_on_submit=True):
        key = st.selectbox("Your key", keys, format_func=safe, key="sign-key")
        decision = st.radio("Your decision", decisions, key="sign-decision", horizontal=True)
        comment = st.text_area("Comment", key="sign-comment", max_chars=4000, help="Signed with the rest.")
        passphrase = st.text_input("Passphrase of the key", type="password", key="sign-passphrase", autocomplete="off")
        pressed = st.form_submit_button("Add my signature" if again else "Sign")
    said = {"key": key or "", "decision": decision or "", "comment": comment or ""}
    about = {"run": run.id, "artifact": bound.artifact.folder.name if bound else _RUN_ALONE}
    with notice:
        fresh = parts_keys.is_fresh(desk, {**said, **about} if pressed else {})
    if pressed and fresh:
        parts_keys.attempt(lambda: _signed(desk.sign(run, passphrase=passphrase or "", bound=bound, **said)))
    with st.expander("New reviewer key"):
        parts_keys.key_form(desk)


def verify_upload(desk: Desk, here: state.Selection) -> None:
    """Any verdict file held against the trust file, and if asked against the chosen run and revision."""
    uploaded = st.file_uploader("Verdict file", type=["json"], key="verdict-upload", max_upload_size=4)
    bound = st.checkbox("It must be about the chosen run and revision", value=True, key="verify-bound")
    if uploaded is None:
        return
    run, folder = (here.run, here.entry.folder if here.entry else None) if bound else (None, None)
    try:
        _show(desk.check(uploaded.getvalue(), run, folder))
    except PrefixgateError as problem:
        st.error(f"Not valid. {in_markdown(explain(problem), 1000)}", icon=":material/gpp_bad:")


def reports(desk: Desk, run: Run) -> None:
    """The run as files that need no dashboard."""
    row = st.container(horizontal=True)
    _file(row, "Report (HTML)", lambda: to_html(run, desk.digest(run)).encode(), f"{run.id}.html", "text/html")
    _file(row, "JSON", lambda: json.dumps(run.report, indent=1).encode(), f"{run.id}.json")
    _file(row, "Markdown", lambda: to_markdown(run.report).encode(), f"{run.id}.md", "text/markdown")
    _file(row, "JUnit XML", lambda: to_junit(run.report), f"{run.id}.xml", "application/xml")


def _show(verdict: VerifiedVerdict) -> None:
    """A verdict that holds: what it says first, then who says so."""
    said, review = verdict.statement, verdict.statement.review
    people = ", ".join(in_markdown(signer.person, 80) for signer in verdict.signers)
    head = f"Valid, signed by {people}. It says: **{'release' if verdict.says_yes else 'do not release'}**"
    show, icon = (st.success, ":material/verified:") if verdict.says_yes else (st.warning, ":material/verified:")
    show(f"{head} ({verdict.result}).", icon=icon)
    st.text(f"Decision: {review.decision}. Comment: {safe(review.comment, 4000) or 'none'}")
    compared = ", ".join(verdict.compared) or "nothing but its signatures"
    st.text(
        f"Run {safe(said.run)}, verdict number {said.place.sequence}, of {clock.when(said.place.time)}. "
        f"Held against: {compared}."
    )


def _file(
    place: DeltaGenerator,
    label: str,
    content: bytes | Callable[[], bytes],
    name: str,
    mime: str = "application/json",
) -> None:
    """A button that saves a file; one that has to be made first is made when it is pressed."""
    place.download_button(
        in_markdown(label, 80),
        content,
        file_name=name,
        mime=mime,
        on_click="ignore",
        key=f"file-{label}",
        icon=":material/download:",
    )


def _choose_artifact(names: list[str]) -> str:
    """What a new verdict will name beside the run; the newest artifact unless the reviewer says otherwise."""
    if len(names) == 1:
        return names[0]
    return st.selectbox("The verdict is about", names, format_func=safe, key="sign-artifact") or names[0]


def _say_bound(bound: Bound | None, *, again: bool) -> None:
    """Which artifact and evidence are signed for."""
    if bound is None:
        words = "The verdict on file names no artifact." if again else "No artifact is named in the verdict."
        st.caption(f"{words} It is about the revision and its run.")
        return
    found = [f"{one.kind} ({one.status})" for one in bound.evidence.values()]
    st.caption(
        in_markdown(
            f"It names artifact {bound.artifact.folder.name} ({short(bound.artifact.digest)}) with "
            f"{', '.join(found) or 'no evidence'}. Evidence that did not pass refuses the release.",
            600,
        )
    )


def _signed(done: SignedVerdict) -> str:
    return f"Signed. The verdict is number {done.sequence} and carries {plural(done.signatures, 'signature')}."
