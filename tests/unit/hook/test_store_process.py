"""The process that keeps bytes for all ranks: what one client adds no other can change or give back."""

import os
import resource
import signal
import socket
import struct
import subprocess
import sys

import pytest

ASK, ANSWER = struct.Struct("III4xQQQ"), struct.Struct("IIQQQQ32x")
ADD, MORE, ACQUIRE, RELEASE, COUNTS = range(5)
GIVEN, BUSY, GO_ON, REFUSED = range(4)
CHUNK = 64 << 10
SERVE = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).phantora_store_serve(int(sys.argv[2]), sys.argv[3].encode())"


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)

    def tell(self, what, number=0, key=0, nbytes=0, content=b"", named=1):
        self.socket.send(ASK.pack(what, number, named, key, key, nbytes) + content)

    def ask(self, what, **fields):
        """Status, number, keys, offset and size."""
        self.tell(what, **fields)
        return self.hear()

    def hear(self):
        packet = self.socket.recv(1 << 12)
        return ANSWER.unpack(packet) if packet else None


MOST_FILES = 40


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))


@pytest.fixture
def store(library, tmp_path):
    """Makes clients."""
    here = os.getcwd()
    os.chdir(tmp_path)  # the path of a socket is at most 107 bytes long
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("store")
        listener.listen()
        served = subprocess.Popen(
            [sys.executable, "-c", SERVE, library, str(listener.fileno()), "."],
            pass_fds=[listener.fileno()],
            preexec_fn=few_files,
        )
    try:
        yield lambda: Client("store")
        assert served.poll() is None
    finally:
        served.send_signal(signal.SIGKILL)
        served.wait()
        os.chdir(here)


def content_at(tmp_path, offset, nbytes):
    with (tmp_path / "contents").open("rb") as file:
        return os.pread(file.fileno(), nbytes, offset)


def test_equal_bytes_are_kept_once_until_nobody_refers_to_them(store, tmp_path):
    first, second, stranger = store(), store(), store()
    status, number, low, high, offset, nbytes = first.ask(ADD, key=7, nbytes=5, content=b"bytes")
    assert (status, nbytes) == (GIVEN, 5)
    assert content_at(tmp_path, offset, 5) == b"bytes"
    assert second.ask(ADD, key=7, nbytes=5, content=b"other") == (GIVEN, number, low, high, offset, 5)
    assert content_at(tmp_path, offset, 5) == b"bytes"
    for _ in range(3):
        stranger.tell(RELEASE, number=number)
    assert stranger.ask(ACQUIRE, number=number, key=8)[0] == REFUSED
    first.tell(RELEASE, number=number)
    assert second.ask(ADD, key=7, nbytes=5, content=b"bytes")[1] == number
    for _ in range(2):
        second.tell(RELEASE, number=number)
    second.ask(COUNTS)
    assert content_at(tmp_path, offset, 5) in (b"", bytes(5))


def test_the_key_must_be_that_of_the_content(store):
    client = store()
    assert client.ask(ADD, key=7, nbytes=5, content=b"bytes", named=0)[0] == REFUSED
    assert client.ask(ADD, key=7, nbytes=5, content=b"bytes")[0] == GIVEN


def test_large_content_comes_in_parts(store, tmp_path):
    client, other = store(), store()
    content = os.urandom(3 * CHUNK + 100)
    assert client.ask(ADD, key=7, nbytes=len(content))[0] == GO_ON
    assert other.ask(ADD, key=7, nbytes=len(content))[0] == BUSY
    for at in range(0, len(content), CHUNK):
        client.tell(MORE, content=content[at : at + CHUNK])
    status, _, _, _, offset, nbytes = client.hear()
    assert (status, content_at(tmp_path, offset, nbytes)) == (GIVEN, content)


def test_a_client_that_ends_while_it_adds_leaves_nothing(store):
    client, other = store(), store()
    assert client.ask(ADD, key=7, nbytes=2 * CHUNK)[0] == GO_ON
    client.tell(MORE, content=bytes(CHUNK))
    client.socket.close()
    while (answer := other.ask(ADD, key=7, nbytes=2 * CHUNK))[0] == BUSY:
        pass
    assert answer[0] == GO_ON


def test_a_client_that_stops_while_it_adds_holds_nobody_up(store, tmp_path):
    stopped, other = store(), store()
    content = os.urandom(2 * CHUNK)
    assert stopped.ask(ADD, key=7, nbytes=len(content))[0] == GO_ON
    while (answer := other.ask(ADD, key=7, nbytes=len(content)))[0] == BUSY:
        pass
    assert answer[0] == GO_ON
    for client in (other, stopped):
        for at in (0, CHUNK):
            client.tell(MORE, content=content[at : at + CHUNK])
        status, _, _, _, offset, nbytes = client.hear()
        assert (status, content_at(tmp_path, offset, nbytes)) == (GIVEN, content)


def test_a_connection_too_many_is_refused_and_the_others_go_on(store):
    clients = [store() for _ in range(MOST_FILES)]
    assert clients[-1].hear() is None
    assert clients[0].ask(ADD, key=7, nbytes=1, content=b"x")[0] == GIVEN


@pytest.mark.parametrize(
    "packet",
    [
        b"x",
        ASK.pack(99, 0, 0, 0, 0, 0),
        ASK.pack(ADD, 0, 0, 0, 0, 0),
        ASK.pack(ADD, 0, 0, 7, 7, 5) + b"too much",
        ASK.pack(MORE, 0, 0, 0, 0, 0) + b"nothing was added",
    ],
)
def test_what_no_client_sends_ends_its_connection_alone(store, packet):
    client, other = store(), store()
    client.socket.send(packet)
    assert client.hear() is None
    assert other.ask(ADD, key=7, nbytes=1, content=b"x")[0] == GIVEN
    assert other.ask(ACQUIRE, number=2**32 - 1, key=7)[0] == REFUSED
    assert other.ask(ADD, key=8, nbytes=2**64 - 1)[0] == REFUSED
