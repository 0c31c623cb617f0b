"""The inspector's attention: which earlier events each event looked back at."""

from __future__ import annotations

import numpy as np
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.views import charts_whatif
from auditlib.views.text import in_markdown
from auditlib.web import address
from auditlib.web.inspection import Seen, attention

_MEAN = "mean"


def attended(seen: Seen) -> None:
    """Which earlier events each event attended to, of one head or of the mean; words where it is not offered."""
    try:
        found = attention(seen.here, seen.prefix)
    except PrefixgateError as problem:
        st.error(in_markdown(problem, 1000))
        return
    if found is None:
        st.text("This decoder's adapter does not offer its attention, so there is nothing to draw.")
        return
    row = st.container(horizontal=True)
    layers, heads = found.shape[:2]
    layer = address.choose(row, "layer", "Layer", [str(n) for n in range(layers)], default=str(layers - 1))
    head = address.choose(row, "head", "Head", [_MEAN, *(str(n) for n in range(heads))], shown=_head_words)
    weights = found[int(layer or 0)]
    one: np.ndarray = weights.mean(axis=0) if head == _MEAN else weights[int(head or 0)]
    title = f"Attention of layer {layer}, {_head_words(head or _MEAN)}, full path"
    st.plotly_chart(charts_whatif.attention(one, seen.names, title), key="attention")
    if len(seen.names) > charts_whatif.MOST_ATTENDED:
        st.caption(f"The newest {charts_whatif.MOST_ATTENDED} of {len(seen.names)} events.")


def _head_words(head: str) -> str:
    return "mean of all heads" if head == _MEAN else f"head {head}"
