"""Random and mutated messages of the wire protocol, from a seed."""

import random
from struct import pack

from bookie.ledger.types import Status
from bookie.proto import v2, v3

KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")
_LEDGERS = 16
_ENTRIES = 256


def packet(ledger_id: int, entry_id: int, payload: bytes) -> bytes:
    return pack(">qqqq", ledger_id, entry_id, entry_id - 1, len(payload)) + b"sum!" + payload


def _requests(rng: random.Random, version: int) -> list[bytes]:
    """Return good requests of every kind; ids from a small range, so that they meet."""
    v3_found: list[bytes] = []
    v2_found: list[bytes] = []
    for txn_id in range(1, 400):
        ledger_id, entry_id = rng.randrange(_LEDGERS), rng.randrange(_ENTRIES)
        body = packet(ledger_id, entry_id, rng.randbytes(rng.choice((0, 5, 100, 1000))))
        lac = pack(">qq", ledger_id, entry_id) + b"sum!"
        priority = rng.choice((0, 0, 100))
        v3_found += (
            v3.encode_add_request(
                txn_id, ledger_id, entry_id, KEY, body,
                is_recovery=rng.random() < 0.3, is_deferred_sync=rng.random() < 0.2,
                priority=priority,
            ),
            v3.encode_read_request(txn_id, ledger_id, entry_id, priority=priority),
            v3.encode_read_request(txn_id, ledger_id, -1),
            v3.encode_read_request(
                txn_id, ledger_id, -1, previous_lac=entry_id, wait_ms=rng.choice((0, 1, 50)),
                is_piggyback=True,
            ),
            v3.encode_read_lac_request(txn_id, ledger_id),
            v3.encode_write_lac_request(txn_id, ledger_id, KEY, entry_id, lac),
            v3.encode_force_request(txn_id, ledger_id),
            v3.encode_info_request(txn_id),
            v3.encode_list_entries_request(txn_id, ledger_id),
            v3.encode_auth_request(txn_id, "Plugin", b"payload"),
            v3.encode_start_tls_request(txn_id),
        )  # fmt: skip
        v2_found += (
            v2.encode_add_request(KEY, body, is_recovery=rng.random() < 0.3),
            v2.encode_read_request(ledger_id, entry_id),
            v2.encode_batch_read_request(ledger_id, entry_id, txn_id, 10, 10_000),
            v2.encode_auth_request("Plugin", b"payload"),
        )
        if txn_id % 40 == 0:
            ledger_id = _LEDGERS + txn_id % 3  # the others stay open to adds
            v3_found += (
                v3.encode_read_request(txn_id, ledger_id, -1, fence_key=KEY),
                v3.encode_add_request(txn_id, ledger_id, entry_id, bytes(20), body),
            )
            v2_found.append(v2.encode_read_request(ledger_id, -1, fence_key=KEY))
    return v3_found if version == 3 else v2_found


def _answers(rng: random.Random) -> list[bytes]:
    """Return good answers of every kind, to the txn ids 1 to 40."""
    found: list[bytes] = []
    statuses = [status for status in Status if status >= 0]
    for number in range(400):
        txn_id = 1 + number % 40
        ledger_id, entry_id = rng.randrange(_LEDGERS), rng.randrange(_ENTRIES)
        body = packet(ledger_id, entry_id, rng.randbytes(rng.choice((0, 5, 100, 1000))))
        status = rng.choice(statuses)
        found += (
            v3.encode_add_response(txn_id, status, ledger_id, entry_id),
            v3.encode_read_response(txn_id, status, ledger_id, entry_id, body, entry_id),
            v3.encode_read_response(txn_id, status, ledger_id, entry_id),
            v3.encode_read_lac_response(txn_id, status, ledger_id, body[:20], body),
            v3.encode_write_lac_response(txn_id, status, ledger_id),
            v3.encode_force_response(txn_id, status, ledger_id),
            v3.encode_info_response(txn_id, status, 1 << 40, 1 << 39),
            v3.encode_list_entries_response(txn_id, status, ledger_id, bytes(64)),
            v3.encode_auth_response(txn_id),
            v3.encode_bare_response(2, txn_id, status),
            v2.encode_read_response(status, ledger_id, entry_id, body),
        )
    return found


class Messages:
    """An endless supply; `next()` returns one message, most of them broken."""

    def __init__(self, rng: random.Random, corpus: list[bytes]) -> None:
        self._rng = rng
        self._corpus = corpus

    @classmethod
    def requests(cls, seed: int, version: int) -> "Messages":
        """Return messages for a server, of v3 or v2."""
        rng = random.Random(seed)
        return cls(rng, _requests(rng, version))

    @classmethod
    def answers(cls, seed: int) -> "Messages":
        """Return messages for a client."""
        rng = random.Random(seed)
        return cls(rng, _answers(rng))

    def next(self) -> bytes:
        rng = self._rng
        good = self._corpus[int(rng.random() * len(self._corpus))]
        draw = rng.random()
        if draw < 0.5:
            return good
        if draw < 0.55:
            return self._random()
        payload = bytearray(good[4:])
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            self._mutate(payload)
        if draw < 0.97:
            return len(payload).to_bytes(4, "big") + payload
        # A length that lies: the next message begins somewhere else.
        length = rng.choice((0, 1, len(payload) + 1, len(payload) * 2, rng.getrandbits(32)))
        return (length & 0xFFFFFFFF).to_bytes(4, "big") + payload

    def _random(self) -> bytes:
        rng = self._rng
        payload = rng.randbytes(rng.choice((0, 1, 4, 16, 60, 300)))
        start = rng.choice((b"", b"\x0a", b"\x02", b"\x02\x01\x00\x00", b"\x02\x07\x00\x00"))
        return (len(start) + len(payload)).to_bytes(4, "big") + start + payload

    def _mutate(self, payload: bytearray) -> None:
        rng = self._rng
        count = len(payload)
        at = int(rng.random() * count) if count else 0
        match rng.randrange(8):
            case 0 if count:
                payload[at] ^= 1 << rng.randrange(8)
            case 1 if count:
                payload[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del payload[at:]
            case 3:
                payload[at:at] = rng.randbytes(rng.choice((1, 2, 8, 40)))
            case 4:
                del payload[at : at + rng.choice((1, 2, 8))]
            case 5:
                other = rng.choice(self._corpus)[4:]
                payload[at:] = other[int(rng.random() * len(other)) :]
            case 6:
                payload += rng.choice(self._corpus)[4:]  # fields twice
            case _ if count > 12:
                payload[2 : 2 + min(8, count - 2)] = rng.randbytes(min(8, count - 2))
            case _:
                payload += b"\x80"
