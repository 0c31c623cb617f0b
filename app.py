"""The dashboard: `streamlit run app.py -- --store S` (without a store, the demo). The page list is in the shell."""

import streamlit as st

from auditlib.web import warm

if __name__ == "__main__":  # Streamlit runs this file for each page that somebody asks for
    from auditlib.web.shell import main

    main()
else:  # the server reads it once, at its start
    from auditlib.web.bundle import in_front

    app = st.App(__file__, lifespan=warm.lifespan, middleware=[in_front(st.get_option("server.baseUrlPath"))])
