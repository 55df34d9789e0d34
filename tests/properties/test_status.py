from __future__ import annotations

import json

from provable_circuits.properties.status import PropertyStatus


def test_a_status_is_its_word_and_explains_itself() -> None:
    assert [status.value for status in PropertyStatus] == [
        "holds",
        "violated",
        "unknown",
        "timeout",
    ]
    assert PropertyStatus("holds") is PropertyStatus.HOLDS  # type: ignore[call-arg]
    assert json.dumps(PropertyStatus.TIMEOUT) == '"timeout"'
    assert "replayed" in PropertyStatus.VIOLATED.explanation
