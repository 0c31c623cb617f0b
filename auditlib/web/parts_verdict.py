"""Parts of the verdict page: why, who signed, verifying, and the files to take away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from auditlib.errors import PrefixgateError
from auditlib.release.refusals import RefusedError
from auditlib.release.verdict import VerifiedVerdict
from auditlib.runs.folder import Run
from auditlib.views.junit import to_junit
from auditlib.views.markdown import to_markdown
from auditlib.views.report import to_html
from auditlib.views.summary import headline, sentence
from auditlib.views.text import in_markdown, safe
from auditlib.web import clock, state
from auditlib.web.desk import Desk, explain
from auditlib.web.exports import named
from auditlib.web.roster import missing
from auditlib.web.text import short


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
            # a list, because a phone shows each reason on two lines
            st.markdown("\n".join(f"- {in_markdown(_with_figures(run.report, reason))}" for reason in reasons))


def signatures(desk: Desk, here: state.Selection, run: Run) -> None:
    """The verdict that lies beside the run: who signed it, whether it holds, and its files."""
    file = desk.verdict_file(run)
    if not file.exists():
        st.info("UNSIGNED: nobody has signed this run yet.", icon=":material/edit_off:")
        return
    envelope = file.read_bytes()
    folder = here.entry.folder if here.entry else None
    gone = folder is not None and not folder.is_dir()
    try:
        _show(desk.check(envelope, run, None if gone else folder))
        if gone:
            st.warning(
                f"The revision's folder is gone from {in_markdown(folder)}: the verdict holds, and was not held "
                "against the revision's files.",
                icon=":material/folder_off:",
            )
    except RefusedError as problem:
        early = problem.reason == "threshold"
        words = "Not complete yet." if early else "The verdict on file does not hold."
        show, icon = (st.warning, ":material/group:") if early else (st.error, ":material/gpp_bad:")
        show(f"{words} {in_markdown(explain(problem), 1000)}", icon=icon)
    except PrefixgateError as problem:
        st.error(f"The verdict on file does not hold. {in_markdown(explain(problem), 1000)}", icon=":material/gpp_bad:")
    row = st.container(horizontal=True)
    _file(row, "Verdict (DSSE envelope)", envelope, f"{named(run, 'verdict')}.dsse.json")
    for person, bundle in desk.bundles(run).items():
        _file(row, f"Sigstore bundle of {person}", bundle, f"{named(run, f'verdict-{person}')}.sigstore.json")
    if desk.settings.trust.exists():
        _file(row, "Trust file", desk.settings.trust.read_bytes(), "trust.json")


def people(desk: Desk, run: Run) -> None:
    """How many people must sign, who has, and whose signature is missing."""
    trust = desk.trust()
    if trust is None:
        return
    found = desk.roster(run, datetime.now(UTC))
    still = [safe(person, 80) for person in missing(found).values()]
    signed = len({place.holder for place in found if place.signed and not place.against})
    lacking = trust.threshold - signed
    st.text(f"Signed by {_people(signed)}; the trust file asks for {_people(trust.threshold)}.")
    if lacking > len(still):
        st.warning("The trust file asks for more people than have a key that counts.", icon=":material/warning:")
    elif lacking > 0:
        st.text(f"Still needed: {'' if lacking == len(still) else f'{lacking} of '}{', '.join(still)}.")
    rows = [
        {
            "person": safe(place.person, 80),
            "signed": "✓ signed" if place.signed else "– not yet",
            "when": (clock.when(place.when) if place.when else "not noted") if place.signed else "–",
            "counts": place.against or "yes",
            "key": short(place.keyid),
        }
        for place in found
    ]
    columns = {"when": st.column_config.Column(help=_WHEN)}
    alt = "Who may sign, and who has"
    st.dataframe(pd.DataFrame(rows), key="people", hide_index=True, column_config=columns, alt=alt)


_WHEN = (
    "The first signature's time is signed with it. Those of further signatures are noted by the dashboard that they "
    "were made in."
)


def _people(count: int) -> str:
    return {0: "nobody", 1: "1 person"}.get(count, f"{count} people")


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
    row, name = st.container(horizontal=True), named(run, "report")
    _file(row, "Report (HTML)", lambda: to_html(run, desk.digest(run)).encode(), f"{name}.html", "text/html")
    _file(row, "JSON", lambda: json.dumps(run.report, indent=1).encode(), f"{name}.json")
    _file(row, "Markdown", lambda: to_markdown(run.report).encode(), f"{name}.md", "text/markdown")
    _file(row, "JUnit XML", lambda: to_junit(run.report), f"{name}.xml", "application/xml")


def _with_figures(report: Mapping[str, Any], reason: str) -> str:
    """A reason as the gate wrote it, or the check that it names with its figures where it was measured."""
    for audit, result in report["audits"].items():
        for check in result["checks"]:
            if check["value"] is not None and reason == f"{audit}: {check['name']}: {check.get('reason')}":
                return sentence(audit, check)
    return reason


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
