"""KeptTexts: statements by number: a text that comes again goes over the wire twice at the most.

The server keeps a text under a number of the driver's choice, until another takes its place.
One thread at a time.
"""

from typing import Any

from herdpy.proto.messages import KEPT_CHARACTERS_MAX, KEPT_MAX, Execute, ExecuteKept, Message


class KeptTexts:
    """What one connection's server keeps."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}  # kept: the server said that it has run
        self.asked: dict[str, int] = {}
        """Seen once (0), or to be kept with its next answer."""
        self._last = 0

    def message(
        self, request: int, text: str, parameters: Any, counter: int, acknowledged: int
    ) -> Message:
        number = self._numbers.get(text)
        if number is not None:
            return ExecuteKept(request, number, parameters, counter, acknowledged)
        keep = self.asked.get(text)
        if keep == 0:
            keep = self._new_number()
            self.asked[text] = keep
        elif keep is None and len(text) <= KEPT_CHARACTERS_MAX:
            if len(self.asked) >= KEPT_MAX:
                del self.asked[next(iter(self.asked))]
            self.asked[text] = 0
        return Execute(request, text, parameters, counter, acknowledged, keep or 0)

    def has_run(self, text: str) -> None:
        """Note that a request with this text was answered by success."""
        number = self.asked.get(text)
        if number:
            del self.asked[text]
            self._numbers[text] = number

    def _new_number(self) -> int:
        number = self._last = self._last % KEPT_MAX + 1
        for texts in (self._numbers, self.asked):
            for text in [text for text, known in texts.items() if known == number]:
                del texts[text]
        return number
