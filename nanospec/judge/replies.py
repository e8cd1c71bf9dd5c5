"""What a server answers, bounded: it may be anybody's, and may answer anything.

A reply is read for `timeout` seconds and MOST_BYTES at most, its status line and headers included:
a byte every half second, endless "100 Continue" and chunks of 2^64 bytes end there too. A server on
this machine is asked directly, whatever proxy the environment names. A redirection is not followed.
"""

import ipaddress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from io import BufferedReader, RawIOBase
from time import perf_counter
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import (HTTPHandler, HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request,
                            build_opener, getproxies, proxy_bypass)

MOST_BYTES = 2 ** 22    # of a reply: some 10,000 tokens with their logprobs
AT_ONCE = 2 ** 16       # bytes that are read at a time
BROKEN = OSError, HTTPException, ValueError, OverflowError      # what a reply may end in


class Bounded(RawIOBase):
    """The bytes of a socket. raw: the socket's file; sock.gettimeout(): for how many seconds."""

    def __init__(self, raw: Any, sock: Any):
        self.raw, self.sock, self.left = raw, sock, MOST_BYTES
        self.seconds = sock.gettimeout()
        self.until = perf_counter() + self.seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = self.until - perf_counter()
        if seconds <= 0:
            raise TimeoutError(f"it was still answering after {self.seconds:g} seconds")
        self.sock.settimeout(seconds)
        got = self.raw.readinto(buffer)
        self.left -= got
        if self.left < 0:
            raise OSError(f"its reply has more than {MOST_BYTES:,} bytes")
        return got

    def close(self) -> None:
        self.raw.close()
        super().close()


class Reply(HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **more: Any):
        super().__init__(sock, *args, **more)
        self.fp: Any = BufferedReader(Bounded(self.fp.detach(), sock))


class Connection(HTTPConnection):
    response_class = Reply


class SafeConnection(HTTPSConnection):
    response_class = Reply


class Handler(HTTPHandler):
    def http_open(self, request: Request) -> Any:
        return self.do_open(Connection, request)


class SafeHandler(HTTPSHandler):
    def https_open(self, request: Request) -> Any:
        return self.do_open(SafeConnection, request)


class NoRedirection(HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """None: the reply is what it is."""


def on_this_machine(host: str) -> bool:
    """Example: localhost, 127.0.0.1, [::1]."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


class Way:
    """To the server of a URL. through: how an error names the proxy, if one is in between."""

    def __init__(self, url: str):
        parts = urlsplit(url)
        host = parts.hostname or ""
        local = on_this_machine(host)
        self.opener = build_opener(Handler, SafeHandler, NoRedirection,
                                   ProxyHandler({} if local else None))
        used = not local and parts.scheme in getproxies() and not proxy_bypass(host)
        self.through = " (asked through the proxy that the environment names)" * bool(used)

    def post(self, url: str, body: bytes, timeout: float) -> tuple[int, bytes]:
        """(status, the reply). One of BROKEN where there is none within the bounds."""
        request = Request(url, body, {"Content-Type": "application/json"})
        try:
            reply = self.opener.open(request, timeout=timeout)
        except HTTPError as error:              # a reply, too: it says what is wrong
            reply = error
        answer = bytearray()
        with reply:
            while part := reply.read(AT_ONCE):
                answer += part
            if reply.length:
                raise IncompleteRead(bytes(answer), reply.length)
        return reply.status, bytes(answer)
