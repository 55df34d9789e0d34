"""The report page: one HTML file that shows a run, or two compared, and needs nothing else."""
