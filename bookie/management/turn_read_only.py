"""After a drain began: a bookie that does not follow its state is made read-only over HTTP.

Ours watch their state and register read-only within moments. Apache's know nothing of it: their
admin endpoint makes them read-only, where HTTP is on; else an operator has to, or stops them.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from bookie.ledger.types import BookieId
from bookie.management.http_client import Url, send
from bookie.metadata.bookies import BookieDirectory, Mode
from bookie.metadata.service_info import Address

_PATH = "/api/v1/bookie/state/readonly"
_TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.2
_PATIENCE_S = 5.0
"""So long a bookie may take to register as what it was told to be."""


async def turn_read_only(
    directory: BookieDirectory,
    bookie_id: BookieId,
    put: Callable[[Address], Awaitable[None]],
) -> str:
    """See that a draining bookie leaves the writable ones; return what is left to do, or "".

    put: asks for read-only at a bookie's HTTP endpoint; OSError where that fails.
    """
    if await _is_not_writable(directory, bookie_id):
        return ""
    info = directory.info_of(bookie_id)
    address = None if info is None else info.http_address
    advice = (
        "it is still writable and does not follow its state, as Apache's bookies: the drain waits "
        "until it is read-only or away"
    )
    if address is None:
        return f"{advice}. It names no HTTP endpoint; make it read-only, or stop it"
    asked = f"PUT {_PATH} at {address.host}:{address.port}"
    try:
        await put(address)
    except OSError as error:
        return f"{advice}. {asked} failed ({error}); make it read-only, or stop it"
    if await _is_not_writable(directory, bookie_id):
        return ""
    return f"{advice}. {asked} was taken; look with `bookie bookies status {bookie_id}`"


async def put_read_only(address: Address, tls: ssl.SSLContext | None = None) -> None:
    """Ask a bookie to be read-only; OSError.

    tls: its endpoint speaks TLS. Registrations do not say: Apache's call it "http" either way.
    """
    url = Url("http" if tls is None else "https", address.host, address.port, _PATH)
    body = json.dumps({"readOnly": True}).encode()
    status = await send("PUT", url, {}, body, tls, _TIMEOUT_S)
    if status != HTTPStatus.OK:
        raise OSError(f"HTTP status {status}")


async def _is_not_writable(directory: BookieDirectory, bookie_id: BookieId) -> bool:
    looks = round(_PATIENCE_S / _LOOK_EVERY_S)
    for _ in range(looks):
        await directory.catch_up()
        if directory.mode_of(bookie_id) is not Mode.WRITABLE:
            return True
        await asyncio.sleep(_LOOK_EVERY_S)
    return False
