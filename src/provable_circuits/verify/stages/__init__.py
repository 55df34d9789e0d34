"""Stages: one question, or a batch of them, on its way from cheap answers to dear ones."""
