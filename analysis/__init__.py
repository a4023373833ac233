"""Reading run folders: metrics, tables and figures."""
