"""The journal of a search: every verdict on disk as it is reached, and found again by content.

``keys`` says what a question is, ``store`` keeps verdicts in a file, ``journaled`` is a predicate
that answers from it, ``surroundings`` knows folders where a file cannot be kept safely, and
``upkeep`` checks, merges, exports and prunes.
"""
