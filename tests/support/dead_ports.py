"""Ports at which nobody answers, and a certificate that nobody vouches for."""

from __future__ import annotations

import atexit
import shutil
import socket
import ssl
import subprocess
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest


def free_port() -> int:
    """A port that nobody listens on, and that is given to nobody else. A server of the test's own may listen on it
    later, if it reuses addresses, as asyncio's do."""
    sock = socket.socket()
    atexit.register(sock.close)  # which keeps it until then
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock.getsockname()[1]


@contextmanager
def listening(*, full: bool = False, port: int = 0) -> Generator[int]:
    """A port on which nobody reads: connections come about, or (if its queue is full) not even these."""
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen(0 if full else 128)
        for _ in range(2 if full else 0):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(sock.getsockname())
        yield sock.getsockname()[1]


def unvouched(folder: Path) -> ssl.SSLContext:
    """TLS with a certificate that nobody vouches for; its files go into `folder`."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed (Debian, Ubuntu: apt-get install openssl)")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(cert)]
    command += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
