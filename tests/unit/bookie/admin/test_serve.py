"""What `bookie serve` refuses before it writes: directories of others, ports that are taken."""

import socket
from pathlib import Path

import pytest

from bookie.admin.serve import check_directory, check_ports
from bookie.config import BookieConfig
from bookie.errors import BookieStartError


@pytest.mark.parametrize(
    "names", [(), ("lost+found",), ("LOCK", "index.lmdb"), ("journal", "entries", "notes.txt")]
)
def test_a_directory_that_may_be_a_bookies(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    check_directory(tmp_path)


@pytest.mark.parametrize("names", [("FORMAT", "LOCK"), ("FORMAT", "journal"), ("notes.txt",)])
def test_a_directory_of_another_program_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    with pytest.raises(BookieStartError, match=f"found '{names[0]}' in it; name another one"):
        check_directory(tmp_path)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BookieStartError, match=rf"cannot listen on 127.0.0.1:{port}: .*--port"):
            check_ports(BookieConfig(port=port))
        config = BookieConfig(bookie_id="b1", port=0, http_port=port)
        with pytest.raises(BookieStartError, match=rf"127.0.0.1:{port}: .*--http-port"):
            check_ports(config)
