"""Connections to a server that was there a moment ago: its restart is no reason for a job to fail.

Spark repeats a task at once, and a commit never, so both wait here as long as a connection that is
lost is made anew: retry_timeout_s of the URL.
"""

import time  # noqa: TID251 - a program of its own, on Spark's machines
from urllib.parse import parse_qs, urlsplit

import herdpy
from pyspark_herdpy.options import Options

_TIMEOUT_S = 10.0
_PAUSE_FIRST_S = 0.05
_PAUSE_MAX_S = 1.0


def connect_again(options: Options, *, reads: bool = False) -> herdpy.Connection:
    """Return a new connection, in autocommit, which the caller closes; reads: as Options.connect().

    OperationalError: what is not worth another try, at once, or the last one of that time.
    """
    end_s = time.monotonic() + _timeout_s(options.url)
    pause_s = _PAUSE_FIRST_S
    while True:
        try:
            return options.connect(reads=reads)
        except herdpy.OperationalError as error:
            if error.retry is not herdpy.Retry.SAFE or time.monotonic() >= end_s:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


def _timeout_s(url: str) -> float:
    """Return what the URL says; that it is a number is seen when it is connected to."""
    (*_, given) = parse_qs(urlsplit(url).query).get("retry_timeout_s", [_TIMEOUT_S])
    try:
        return float(given)
    except ValueError:
        return 0.0
