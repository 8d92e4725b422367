"""Protocol v3: golden frames, every message there and back, and hostile bytes."""

from bookie.ledger.types import Status
from bookie.proto import v3

KEY = bytes.fromhex("850bf1071c5e3d8c24235676f8816ae0cbe2f14f")


def test_golden():
    packet = (
        bytes.fromhex(
            "00000000000000070000000000000000ffffffffffffffff0000000000000005" + "9e3e717b"
        )
        + b"hello"
    )
    assert (
        v3.encode_add_request(1, 7, 0, KEY, packet).hex()
        == "000000500a06080310021801aa0645080710001a14850bf1071c5e3d8c24235676f8816ae0cbe2f14f222900000000000000070000000000000000ffffffffffffffff00000000000000059e3e717b68656c6c6f"
    )
    assert (
        v3.encode_add_response(1, Status.OK, 7, 0).hex()
        == "000000130a060803100218011000aa0606080010071800"
    )
    assert (
        v3.encode_read_request(2, 7, -1, fence_key=KEY).hex()
        == "000000310a06080310011802a20626080710ffffffffffffffffff011a14850bf1071c5e3d8c24235676f8816ae0cbe2f14fa00601"
    )
    assert v3.encode_read_lac_request(3, 7).hex() == "0000000d0a06080310071803c206020807"
