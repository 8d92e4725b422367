"""ViewMapping: a Mapping over any readable buffer, whatever keeps the memory."""


class ViewMapping:
    """Mapping that forgets its view on close; the memory goes when the last exported view does."""

    __slots__ = ("_view",)

    def __init__(self, view: memoryview) -> None:
        self._view: memoryview | None = view

    @property
    def view(self) -> memoryview:
        if self._view is None:
            raise ValueError("the mapping is closed")
        return self._view

    def close(self) -> None:
        # Releasing the view would raise BufferError while others are exported from it.
        self._view = None
