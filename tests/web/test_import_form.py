"""The boxes that say which column of a log is what."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def form():
    import streamlit as st  # noqa: PLC0415

    from auditlib.sessions.manifest import ColumnMapping  # noqa: PLC0415
    from auditlib.web.parts_import import _mapping  # noqa: PLC0415

    columns = ("case", "**step**", "phase", "when", ":material/check:")
    found = _mapping(columns, ColumnMapping("case", ("**step**",), "when", None, None, ()))
    st.text("" if found is None else f"{found.event} {found.attributes}")


def test_columns_are_chosen_by_words_that_either_theme_can_show_and_that_are_no_markup():
    app = AppTest.from_function(form).run()
    assert not app.exception
    # Chips of a multiselect are white on the theme's colour, which is light blue in dark mode.
    assert not app.multiselect
    event = app.button_group(key="log-event")
    assert "\\*\\*step\\*\\*" in event.options
    assert event.value == ["**step**"]
    assert not any(label.startswith(":material") for label in event.options)


def test_several_columns_make_one_event_in_the_order_of_choice():
    app = AppTest.from_function(form).run()
    app.button_group(key="log-event").set_value(["phase", "**step**"]).run()
    app.button_group(key="log-attributes").set_value(["when"]).run()
    assert app.text[0].value == "('phase', '**step**') ('when',)"
    app.button_group(key="log-event").set_value([]).run()
    assert app.text[0].value == ""
