"""OsRng: chance from the operating system; nothing to seed, nothing that a fork() would repeat."""

import os


class OsRng:
    """Rng over os.urandom."""

    __slots__ = ()

    def random(self) -> float:
        # 53 random bits, as many as the fraction of a double has.
        return (int.from_bytes(os.urandom(7), "big") >> 3) / (1 << 53)

    def randbytes(self, count: int) -> bytes:
        return os.urandom(count)
