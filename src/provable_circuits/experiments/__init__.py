"""The experiments of the paper: its tables and figures, beside ours."""
