"""Background jobs as a person sees them: buttons that start audits, and a strip with progress, time left and cancel."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from auditlib.views.text import in_markdown, safe
from auditlib.web import address, state, work
from auditlib.web.jobs import JobState, Work
from auditlib.web.text import short

DEMO = "Preparing the demo"
"""Title of the job that makes the demo."""
_DEMO = "demo"
_WATCHED, _JOB = "jobs seen alive", "job"
_RESULTS = {"run": ("run", "revision"), "snapshot": ("snapshot",), "artifact": ("artifact",)}
"""What the words of a job's result choose in the sidebar."""


def audit_buttons(here: state.Selection, audit: str | None = None) -> None:
    """Buttons that audit the chosen revision in the background: one audit, or everything a release needs."""
    if here.entry is None or here.entry.folder is None or here.snapshot is None:
        return
    row = st.container(horizontal=True)
    if audit and row.button(f"Run {audit} only", key="run-one", help="Fast, but a release needs every audit."):
        _start_audits(here, (audit,))
    run_all_button(here, row, "run-all")


def run_all_button(here: state.Selection, place: DeltaGenerator, key: str) -> None:
    """A button that runs every audit of the selection's revision."""
    # not of type "primary": its white text could not be read on the light blue that dark mode needs elsewhere
    if place.button("Run all audits", key=key, icon=":material/play_arrow:"):
        _start_audits(here, None)


def start(key: str, title: str, job: Work) -> None:
    """Queue work and put its id into the address, so that any browser with the link can watch it."""
    queued = state.registry().submit(key, title, job)
    _watch(queued.id)  # it may have ended before this session draws it
    address.put(job=queued.id)
    st.rerun()


def prepare_demo() -> None:
    """Make the demo store, revisions and runs as a job that everybody who opens the page watches; rerun at its end.

    One that failed or was cancelled is said, and made again only when somebody asks for it.
    """
    st.title(DEMO)
    if say_demo_failed():
        if st.button("Try again", key="demo-again", icon=":material/restart_alt:"):
            submit_demo()
            st.rerun()
        return
    job = submit_demo()
    st.write("A made-up service desk, one sound decoder and one with a fault in its cache. This happens once.")
    _live_panel(job)


def say_demo_failed() -> bool:
    """Whether the demo was being made and came to no end; why is said then."""
    last = state.registry().newest(_DEMO)
    if last is None or last.state not in ("failed", "cancelled"):
        return False
    _say_end(last)
    return True


def submit_demo() -> JobState:
    """The job that makes the demo, queued unless it is under way."""
    return state.registry().submit(_DEMO, DEMO, work.demo(state.settings()))


def job_strip(*, turns: bool = True) -> None:
    """Where the job of the address stands, above the page; nothing when there is none.

    `turns` says whether the page may turn to a new run by itself: never where somebody may be about to sign another.
    """
    job_id = address.value("job") or st.session_state.get(_JOB)
    if job_id is None:
        return
    job = state.registry().state(job_id)
    # Links to other pages do not carry the job: while it lives, the session remembers it.
    st.session_state[_JOB] = job_id if job is not None and job.live else None
    address.put(job=job_id)
    if job is None:
        st.warning("This server does not know the job of this link. It ran on another server, or long ago.")
        _dismiss_button()
    elif job.live:
        _watch(job.id)
        _live_panel(job)
    else:
        _ended(job, turns=turns)


def _start_audits(here: state.Selection, audits: tuple[str, ...] | None) -> None:
    """Queue an audit of the chosen revision on the chosen snapshot."""
    entry = here.entry
    if entry is None or entry.folder is None or here.snapshot is None:
        return
    what = "all audits" if audits is None else ", ".join(audits)
    key = f"audit|{entry.digest}|{here.snapshot}|{what}"
    job = work.audit(state.settings(), here.places.store, here.places.runs, entry.folder, here.snapshot, audits)
    start(key, f"{what} of {entry.name} ({short(entry.digest)})", job)


def _live_panel(job: JobState) -> None:
    """Progress that refreshes itself; one rerun of the whole page when the job ends."""

    @st.fragment(run_every=2.0)
    def panel() -> None:
        now = state.registry().state(job.id)
        # The panel reruns alone; the page around it only once, when there is something new to show.
        if now is None or not now.live:
            st.rerun()
            return
        row = st.container(horizontal=True, vertical_alignment="center")
        row.progress(now.share, text=_progress_text(now))
        if row.button("Cancel", key=f"cancel-{job.id}"):
            state.registry().cancel(job.id)

    panel()


def _progress_text(job: JobState) -> str:
    """What is going on, how far it is, and how long it will take."""
    if job.state == "queued":
        waiting = f"waiting for {job.ahead} other job(s)" if job.ahead else "starting"
        return in_markdown(f"{job.title}: {waiting}")
    left = f", about {job.left:.0f} s left" if job.left is not None else ""
    note = f" · {safe(job.note, 80)}" if job.note else ""
    return in_markdown(f"{job.title}: {100 * job.share:.0f} %, {job.seconds:.0f} s{left}{note}")


def _ended(job: JobState, *, turns: bool) -> None:
    """What became of the job; what it made is shown at once to whoever watched it end, but a run only if it `turns`."""
    watched = st.session_state.get(_WATCHED, set())
    if job.state != "done":
        _say_end(job)
    elif job.id in watched and not _is_shown(job) and (turns or "run" not in _choices(job)):
        watched.discard(job.id)
        address.visit(**_choices(job))
        st.rerun()
    else:
        watched.discard(job.id)
        _say_done(job)
    _dismiss_button()


def _say_end(job: JobState) -> None:
    """That a job ended without a result, and why."""
    title = in_markdown(job.title)
    if job.state == "failed":
        st.error(f"{title}: failed. {in_markdown(job.error, 2000)}", icon=":material/error:")
    elif job.state == "cancelled":
        st.info(f"{title}: cancelled. Nothing was written.", icon=":material/cancel:")
    else:
        st.warning(
            f"{title}: interrupted, because the server was restarted. Nothing was written; start it again.",
            icon=":material/restart_alt:",
        )


def _say_done(job: JobState) -> None:
    """That a job is finished, with a way to what it made where the page shows something else."""
    elsewhere = bool(_choices(job)) and not _is_shown(job)
    words = "" if elsewhere else " This page shows its results."
    st.success(f"{in_markdown(job.title)}: finished.{words}", icon=":material/check:")
    if elsewhere:
        label = f"Show its {job.result.split(' ')[0]}"
        st.button(label, key="show-result", on_click=address.visit, kwargs=_choices(job), icon=":material/visibility:")


def _choices(job: JobState) -> dict[str, str]:
    """What the address says where the job's result is shown; empty for a job that made nothing to choose."""
    kind, *names = job.result.split(" ")
    return dict(zip(_RESULTS[kind], names, strict=True)) if kind in _RESULTS else {}


def _is_shown(job: JobState) -> bool:
    return all(address.value(name) == text for name, text in _choices(job).items())


def _watch(job_id: str) -> None:
    """Remember that this session saw the job before its end: a link to an ended one says what to show by itself."""
    st.session_state.setdefault(_WATCHED, set()).add(job_id)


def _dismiss_button() -> None:
    """A button that takes the job out of the address."""
    if st.button("Dismiss", key="dismiss-job", type="tertiary"):
        st.session_state[_JOB] = None
        address.put(job=None)
        st.rerun()
