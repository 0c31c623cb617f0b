"""The dashboard: `streamlit run app.py -- --store S` (without a store, the demo). The page list is in the shell."""

from auditlib.web.shell import main

main()
