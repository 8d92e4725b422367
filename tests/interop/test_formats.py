"""Apache's own classes read what we encode and write it again: byte for byte the same.

Without servers: thousands of random messages, metadata of every format and lists of entries go
through one Java program (java/Formats.java).
"""

import random
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bookie.ledger.metadata_codec import decode, encode
from bookie.ledger.types import (
    BookieId,
    DigestType,
    EntryId,
    LedgerId,
    LedgerMetadata,
    LedgerState,
    Segment,
    Status,
)
from bookie.proto import availability, v3
from tests.interop.apache import Release

KEY = bytes(range(20))
ROUNDS = 60


class Chance:
    """Draws values at the edges of their encodings."""

    def __init__(self, seed: int, *, is_old: bool) -> None:
        self.rng = random.Random(seed)
        # 4.14 knows neither this status nor batch reads: it takes the number for a missing field.
        new = {Status.UNKNOWN_LEDGER_STATE} if is_old else set[Status]()
        self.statuses = [s for s in Status if s >= 0 and s not in new]
        self.operations = [
            o for o in v3.Operation if o != v3.Operation.BATCH_READ_ENTRY or not is_old
        ]

    def int64(self) -> int:
        return self.rng.choice(
            [0, 1, 127, 128, 2**31, 2**63 - 1, -1, -(2**63), self.rng.getrandbits(40)]
        )

    def uint64(self) -> int:
        return self.rng.choice([0, 1, 127, 128, 2**63, 2**64 - 1, self.rng.getrandbits(40)])

    def packet(self) -> bytes:
        return self.rng.randbytes(self.rng.choice([0, 1, 40, 127, 128, 300, 17_000]))

    def status(self) -> Status:
        return self.rng.choice(self.statuses)

    def maybe(self, value: Any) -> Any:
        return self.rng.choice([None, value])


def ask(release: Release, lines: list[str]) -> list[str]:
    ran = subprocess.run(
        release.command("Formats"),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    answers = ran.stdout.splitlines()
    assert len(answers) == len(lines), ran.stderr[-3000:]
    return answers


def requests(chance: Chance) -> Iterator[bytes]:
    u, i, p = chance.uint64, chance.int64, chance.packet
    yield v3.encode_add_request(u(), i(), i(), KEY, p())
    yield v3.encode_add_request(
        u(), i(), i(), KEY, p(), is_recovery=True, is_deferred_sync=True, priority=v3.PRIORITY_HIGH
    )
    fence, lac, wait = chance.maybe(KEY), chance.maybe(i()), chance.maybe(i())
    yield v3.encode_read_request(u(), i(), i(), fence_key=fence, previous_lac=lac, wait_ms=wait)
    yield v3.encode_read_request(u(), i(), -1, previous_lac=i(), wait_ms=i(), is_piggyback=True)
    yield v3.encode_read_lac_request(u(), i())
    yield v3.encode_write_lac_request(u(), i(), KEY, i(), p())
    yield v3.encode_force_request(u(), i())
    yield v3.encode_info_request(u(), i())
    yield v3.encode_list_entries_request(u(), i())
    yield v3.encode_auth_request(u(), "plügin", p())
    yield v3.encode_start_tls_request(u())


def responses(chance: Chance) -> Iterator[bytes]:
    u, i, p, s, maybe = (
        chance.uint64,
        chance.int64,
        chance.packet,
        chance.status,
        chance.maybe,
    )
    yield v3.encode_add_response(u(), s(), i(), i())
    yield v3.encode_read_response(u(), s(), i(), i(), maybe(p()), maybe(i()), maybe(i()))
    yield v3.encode_read_lac_response(u(), s(), i(), p(), p())
    yield v3.encode_write_lac_response(u(), s(), i())
    yield v3.encode_force_response(u(), s(), i())
    yield v3.encode_info_response(u(), s(), maybe(i()), maybe(i()))
    yield v3.encode_list_entries_response(u(), s(), i(), p())
    yield v3.encode_auth_response(u())
    yield v3.encode_start_tls_response(u())
    for operation in chance.operations:
        yield v3.encode_refusal(operation, u(), s(), i(), i())


def ledger(chance: Chance, version: int) -> LedgerMetadata:
    rng, is_v1 = chance.rng, version == 1
    qa = rng.randint(1, 4)
    qw = rng.randint(qa, 5)
    e = rng.randint(qw, 6)
    state = rng.choice(list(LedgerState))
    is_closed = state is LedgerState.CLOSED
    ctime_ms = None if is_v1 else chance.maybe(rng.getrandbits(40))
    return LedgerMetadata(
        ledger_id=LedgerId(7),
        ensemble_size=e,
        write_quorum_size=qw,
        ack_quorum_size=qw if is_v1 else qa,
        segments=tuple(
            Segment(
                EntryId(first), tuple(BookieId(f"10.0.0.{n}:{first % 65535}") for n in range(e))
            )
            for first in sorted({0, *(rng.getrandbits(40) for _ in range(rng.randrange(4)))})
        ),
        digest_type=None if is_v1 else rng.choice(list(DigestType)),
        password=None if is_v1 else rng.randbytes(rng.randrange(30)),
        state=state,
        last_entry_id=EntryId(rng.choice([-1, 0, rng.getrandbits(40)]) if is_closed else -1),
        length=rng.getrandbits(40) if is_closed else 0,
        format_version=version,
        ctime_ms=ctime_ms,
        is_ctime_stored=ctime_ms is not None,
        creator_token=rng.getrandbits(62) if version == 3 else None,
        custom=rng.choice([{}, {"a": b""}, {"bü": b"\x00\xff"}, {"c\"'\n": b"d"}])
        if not is_v1
        else {},
    )


@pytest.mark.parametrize("make", [requests, responses])
def test_messages(release: Release, make: Callable[[Chance], Iterator[bytes]]) -> None:
    chance = Chance(7, is_old=release.version.startswith("4.14."))
    frames = [frame for _ in range(ROUNDS) for frame in make(chance)]
    kind = make.__name__.removesuffix("s")
    answers = ask(release, [f"{kind} {frame[4:].hex()}" for frame in frames])
    for frame, answer in zip(frames, answers, strict=True):
        assert answer == frame[4:].hex()


def test_metadata(release: Release) -> None:
    chance = Chance(7, is_old=False)
    ledgers = [ledger(chance, version) for _ in range(ROUNDS) for version in (1, 2, 3)]
    answers = ask(release, [f"metadata {encode(metadata).hex()}" for metadata in ledgers])
    for metadata, answer in zip(ledgers, answers, strict=True):
        assert answer == encode(metadata).hex(), metadata
        assert decode(LedgerId(7), bytes.fromhex(answer)) == metadata


def test_which_entries_a_bookie_holds(current: Release) -> None:
    rng = random.Random(7)
    lists = [sorted(rng.sample(range(200), rng.randint(1, 150))) for _ in range(ROUNDS)]
    lists += [[e for e in range(200) if (2 - e) % 5 < 3], list(range(50)), [199]]
    everything = ",".join(map(str, range(200)))
    said = ask(
        current, [f"availability {availability.encode(ids).hex()} {everything}" for ids in lists]
    )
    theirs = ask(current, [f"ids {','.join(map(str, ids))}" for ids in lists])
    for ids, answer, data in zip(lists, said, theirs, strict=True):
        held = set(ids)
        assert answer == f"{len(ids)}:" + "".join("01"[e in held] for e in range(200))
        runs = availability.decode(bytes.fromhex(data)).ranges()
        assert [entry_id for run in runs for entry_id in run] == ids
