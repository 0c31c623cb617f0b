"""What is said where no store is: none yet, or one that was here and is gone. Nothing is made in its place unasked."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from auditlib.demo.places import demo_under
from auditlib.views.text import in_markdown
from auditlib.web import disk, parts_jobs, state


def demo_is_gone() -> bool:
    """Whether the demo's runs are there and its store is not, and nobody is making it again at this moment."""
    demo = demo_under(state.settings().home)
    if demo.store.exists() or any(job.title == parts_jobs.DEMO for job in state.registry().live()):
        return False
    found = disk.runs_in(demo.runs)
    return bool(found.runs or found.damaged)


def offer_demo() -> None:
    """Say that the demo's store is gone, with a button that makes it again."""
    st.title("The demo's store is gone")
    _say_gone(demo_under(state.settings().home).store)
    parts_jobs.say_demo_failed()
    st.caption("Made again, it is audited again. Runs, verdicts and keys that are there stay.")
    if st.button("Make the demo again", key="demo-again", icon=":material/restart_alt:"):
        parts_jobs.submit_demo()
        st.rerun()


def say(store: Path, *, known: bool) -> None:
    """That there is no store at this path; `known` where runs tell that there was one."""
    if known:
        _say_gone(store)
        return
    st.info(
        f"No store at {in_markdown(store)} yet. Import a log on the page Sessions, or with "
        "`python -m auditlib import LOG --store S`."
    )


def _say_gone(store: Path) -> None:
    st.error(f"The store {in_markdown(store)} is gone. Put it back; nothing was deleted here.", icon=":material/error:")
