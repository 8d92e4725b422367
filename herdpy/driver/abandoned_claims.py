"""Claims of connections that were collected while open, until a thread may close them.

Apart from local.py, which fills it and empties it, so that a connection to a server does without
the engine. Any thread, without a lock: it grows and shrinks by one dict's item at a time.
"""

from herdpy.driver.interfaces import Claim

abandoned_claims: dict[Claim, None] = {}
"""Still to be closed."""
