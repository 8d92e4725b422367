"""herdpy.aio: the driver for asyncio, the same calls and errors, each awaited; but for sql().

    async with aio.connect("herd://localhost:7000") as conn:
        cursor = await conn.execute("SELECT 1")

One task at a time uses a connection or its cursors; the calls of others wait. A call whose task is
cancelled is cancelled in the database, too, and has ended when CancelledError is raised. A
connection belongs to one loop.
"""

from herdpy.aio.connection import AsyncConnection as AsyncConnection
from herdpy.aio.connection import connect as connect
from herdpy.aio.cursor import AsyncBatches as AsyncBatches
from herdpy.aio.cursor import AsyncCursor as AsyncCursor
from herdpy.aio.handles import AsyncPipeline as AsyncPipeline
from herdpy.aio.handles import AsyncTransaction as AsyncTransaction
from herdpy.aio.pool import Pool as Pool
