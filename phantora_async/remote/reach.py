"""Reaches the coordinator from another machine: nothing is said to it, and nothing heard, before TLS has proved that it
holds the run's token.
"""

from __future__ import annotations

import asyncio
import ssl

from phantora_async.errors import MachineFailed
from phantora_async.remote.sealed import Sealed

PATIENCE_S = 10.0
"""The seconds that one attempt may take."""
RETRY_S = 0.5
"""The seconds between attempts."""
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def reach(host: str, port: int, context: ssl.SSLContext, wait_s: float, limit: int) -> Streams:
    """Connects to the coordinator. Tries again for `wait_s` if nobody listens, or if the connection ends before either
    side is known: strangers may have taken all places. `limit`: bytes that are read ahead. Raises MachineFailed.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while True:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await _connect(host, port, context, limit)
        except ssl.SSLCertVerificationError:
            raise MachineFailed(
                f"what listens at {host}:{port} does not hold this token: is it the right one, and the right address?"
            ) from None
        except ssl.SSLError as error:
            why = f"what listens at {host}:{port} is no coordinator of this version ({error.reason or error})"
            raise MachineFailed(why) from None
        except TimeoutError:
            why = f"no answer within {PATIENCE_S:g} s"
        except OSError as error:
            why = error.strerror or str(error)
        if loop.time() >= until_s:
            raise MachineFailed(f"cannot reach the coordinator at {host}:{port}: {why}")
        await asyncio.sleep(RETRY_S)


async def _connect(host: str, port: int, context: ssl.SSLContext, limit: int) -> Streams:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit)
    above = asyncio.StreamReaderProtocol(reader)
    sealed = Sealed(context, above, server_side=False)
    try:
        await loop.create_connection(lambda: sealed, host, port)
        await sealed.handshake()
    except BaseException:
        sealed.abort()
        raise
    return reader, asyncio.StreamWriter(sealed, above, reader, loop)
