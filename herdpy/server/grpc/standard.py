"""The standard services of gRPC, health and reflection, which ask for no login.

So there is a bound on how many of their streams are open at once. On the server's loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

_Health: Any = cast(Any, health).aio.HealthServicer
_Reflection: Any = cast(Any, reflection).aio.ReflectionServicer


GONE: Any = cast(Any, grpc).aio.InternalError
"""What a write raises when the client has gone away; as CancelledError grpc does not log it."""
NOT_SERVING: Any = health_pb2.HealthCheckResponse.NOT_SERVING


class _Bound:
    """How many streams may be open."""

    def __init__(self, count_max: int) -> None:
        self._count = 0
        self._count_max = count_max

    async def enter(self, context: Any) -> None:
        """Count a stream, or abort it."""
        if self._count >= self._count_max:
            text = "too many streams of health and reflection are open"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._count += 1

    def leave(self) -> None:
        self._count -= 1


class _BoundHealth(_Health):
    def __init__(self, bound: _Bound, is_ready: Callable[[], bool]) -> None:
        super().__init__()
        self._bound = bound
        self._is_ready = is_ready

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802 - grpc's own name
        found = await super().Check(request, context)
        return found if self._is_ready() else health_pb2.HealthCheckResponse(status=NOT_SERVING)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - grpc's own name
        await self._bound.enter(context)
        try:
            await super().Watch(request, context)
        except GONE:
            raise asyncio.CancelledError from None
        finally:
            self._bound.leave()


class _BoundReflection(_Reflection):
    def __init__(self, names: Iterable[str], bound: _Bound) -> None:
        super().__init__(names)
        self._bound = bound

    async def ServerReflectionInfo(  # noqa: N802 - grpc's own name
        self, requests: Any, context: Any
    ) -> AsyncIterator[Any]:
        await self._bound.enter(context)
        try:
            async for reply in super().ServerReflectionInfo(requests, context):
                yield reply
        finally:
            self._bound.leave()


def add_standard_services(
    server: Any, names: tuple[str, ...], streams_max: int, is_ready: Callable[[], bool]
) -> Any:
    """Add health and reflection of the services of these names; return health's servicer.

    Who asks is told by `is_ready`; those who watch hear what the servicer was told, if they listen.
    """
    bound = _Bound(streams_max)
    servicer = _BoundHealth(bound, is_ready)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    named = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflected = _BoundReflection(named, bound)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflected, server)
    return servicer
