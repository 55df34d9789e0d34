"""Bounding: intervals, backward linear bounds (CROWN) with alpha and beta, differential bounds."""
