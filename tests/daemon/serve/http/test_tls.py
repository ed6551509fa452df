"""TLS on both kinds of ports: the handshake, a certificate that changes, clients that need one."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import trustme
from prometheus_client import CollectorRegistry

from daemon.client import NotKeptError, WriteClient
from daemon.exits import EX_CONFIG, UserError
from daemon.look.live import role_status
from daemon.runtime.doors import Gate, ReloadedTls, TlsFiles, TokenFile, add_token, client_context
from daemon.serve.http import Writes
from daemon.serve.http.limits import RESERVED
from daemon.serve.http.server import HANDSHAKES
from daemon.serve.writes.queue import WriteMetrics, WriteQueue
from daemon.telemetry import Health, serve_http
from daemon.telemetry.metrics import add_build_info
from daemon.telemetry.server import MOST_CONNECTIONS
from tests.daemon.serve.http.clients import SMALL
from tests.daemon.serve.http.test_writes import Kept
from tests.daemon.serve.http.toy import HOST, read_all, running
from tests.harness.waiting import until


class Files:
    """A certificate and its key in files; `issue` writes another one over them."""

    def __init__(self, folder: Path, ca: trustme.CA | None = None) -> None:
        self.ca = ca or trustme.CA()
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        self.issue()

    def issue(self) -> None:
        made = self.ca.issue_cert("localhost", HOST)
        self.certificate.write_bytes(b"".join(part.bytes() for part in made.cert_chain_pems))
        self.key.write_bytes(made.private_key_pem.bytes())

    def files(self, client_ca: str = "") -> TlsFiles:
        return TlsFiles(str(self.certificate), str(self.key), client_ca)

    def trusting(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        return context


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def get(port: int, context: ssl.SSLContext, path: str = "/livez", token: str = "") -> tuple[int, str, int]:
    """Status of the answer, the version of TLS, the serial number of the certificate that was shown."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with closing(http.client.HTTPSConnection(HOST, port, timeout=30, context=context)) as connection:
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        shown, version = connection.sock.getpeercert(), connection.sock.version()
        assert shown is not None
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status, str(version), int(str(shown["serialNumber"]), 16)


@pytest.fixture(params=["serve", "the others"])
def port_of(request: pytest.FixtureRequest) -> Iterator[object]:
    """Opens a port of this kind with a context."""
    opened = []

    def opening(context: Callable[[], ssl.SSLContext], gate: Gate | None = None) -> int:
        if request.param == "serve":
            manager = running(context=context, gate=gate)
            served = manager.__enter__()
            opened.append(lambda: manager.__exit__(None, None, None))
            return served.port
        registry = CollectorRegistry()
        add_build_info(registry, "up")
        server = serve_http(registry, Health(), HOST, 0, context=context, gate=gate)
        opened.append(server.close)
        return server.port

    yield opening
    for close in opened:
        close()


def test_it_answers_over_tls_and_a_new_certificate_is_shown_to_new_connections(
    files: Files, port_of: object
) -> None:
    tls = ReloadedTls(files.files())
    port = port_of(tls.context)  # type: ignore[operator]
    status, version, first = get(port, files.trusting())
    assert (status, version in ("TLSv1.2", "TLSv1.3")) == (200, True)
    assert get(port, files.trusting())[2] == first
    with closing(http.client.HTTPSConnection(HOST, port, timeout=30, context=files.trusting())) as kept:
        kept.request("GET", "/livez")
        kept.getresponse().read()
        files.issue()
        assert get(port, files.trusting())[2] == first
        tls.reload()
        second = get(port, files.trusting())[2]
        assert second != first
        kept.request("GET", "/livez")  # whoever is connected stays so
        assert kept.getresponse().status == 200
    files.certificate.write_text("not a certificate")
    with pytest.raises(UserError, match="cannot be used for TLS") as refused:
        tls.reload()
    assert refused.value.code == EX_CONFIG
    assert get(port, files.trusting())[2] == second


def test_old_versions_and_plain_http_are_turned_away_and_it_goes_on(files: Files, port_of: object) -> None:
    port = port_of(ReloadedTls(files.files()).context)  # type: ignore[operator]
    with socket.create_connection((HOST, port), timeout=30) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not read_all(plain).startswith(b"HTTP")
    old = files.trusting()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)):
        get(port, old)
    assert get(port, files.trusting())[0] == 200


def test_where_clients_need_a_certificate_none_is_let_in_without(
    files: Files, port_of: object, tmp_path: Path
) -> None:
    clients, strangers = trustme.CA(), trustme.CA()
    authority = tmp_path / "clients.pem"
    clients.cert_pem.write_to_path(str(authority))
    port = port_of(ReloadedTls(files.files(str(authority))).context)  # type: ignore[operator]
    for issuer in (None, strangers):
        context = files.trusting()
        if issuer is not None:
            issuer.issue_cert("stranger@example.org").configure_cert(context)
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            get(port, context)
    context = files.trusting()
    clients.issue_cert("shop@example.org").configure_cert(context)
    assert get(port, context)[0] == 200


def test_no_handshake_fails_amid_new_certificates(files: Files, port_of: object) -> None:
    """Also of clients that name no host, as asking by address does."""
    tls = ReloadedTls(files.files())
    port = port_of(tls.context)  # type: ignore[operator]
    done, failed = threading.Event(), []

    def asks() -> None:
        context = files.trusting()
        context.check_hostname = False
        while not done.is_set():
            try:
                with socket.create_connection((HOST, port), timeout=30) as plain, context.wrap_socket(plain):
                    pass
            except OSError as error:
                failed.append(error)

    certificates = []
    for _ in range(2):
        files.issue()
        certificates.append((files.certificate.read_bytes(), files.key.read_bytes()))
    threads = [threading.Thread(target=asks) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(300):
        for path, text in zip((files.certificate, files.key), certificates[turn % 2], strict=True):
            path.write_bytes(text)
        tls.reload()
    done.set()
    for thread in threads:
        thread.join()
    assert not failed


def test_an_authority_of_clients_that_is_taken_out_counts_no_more(
    files: Files, port_of: object, tmp_path: Path
) -> None:
    former, clients = trustme.CA(), trustme.CA()
    authority = tmp_path / "clients.pem"
    former.cert_pem.write_to_path(str(authority))
    tls = ReloadedTls(files.files(str(authority)))
    port = port_of(tls.context)  # type: ignore[operator]
    contexts = []
    for issuer in (former, clients):
        contexts.append(files.trusting())
        issuer.issue_cert("shop@example.org").configure_cert(contexts[-1])
    assert get(port, contexts[0])[0] == 200
    clients.cert_pem.write_to_path(str(authority))
    tls.reload()
    assert get(port, contexts[1])[0] == 200
    with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
        get(port, contexts[0])


def resumed(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
    """The session of a connection that is answered 200 and would go on with another one. Raises OSError."""
    with (
        socket.create_connection((HOST, port), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
    ):
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 200 " in read_all(connection)
        return connection.session


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_of_an_authority_that_was_taken_out_is_not_resumed(
    files: Files, port_of: object, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    former, authority = trustme.CA(), tmp_path / "clients.pem"
    former.cert_pem.write_to_path(str(authority))
    tls = ReloadedTls(files.files(str(authority)))
    port = port_of(tls.context)  # type: ignore[operator]
    context = files.trusting()
    context.minimum_version = context.maximum_version = version
    former.issue_cert("shop@example.org").configure_cert(context)
    session = resumed(port, context, None)
    assert session is None or not session.has_ticket
    trustme.CA().cert_pem.write_to_path(str(authority))
    tls.reload()
    with pytest.raises((OSError, AssertionError)):
        resumed(port, context, session)


def test_half_handshakes_have_few_places_and_the_oldest_of_the_client_with_most_give_way(
    files: Files, port_of: object
) -> None:
    assert HANDSHAKES == MOST_CONNECTIONS == 64
    port = port_of(ReloadedTls(files.files()).context)  # type: ignore[operator]
    with ExitStack() as held:
        shop = held.enter_context(socket.create_connection((HOST, port), 30, ("127.0.0.2", 0)))
        shop.sendall(b"\x16\x03\x01\x00\xc8\x01\x00")
        crowd = []
        for _ in range(3 * HANDSHAKES):
            one = held.enter_context(socket.create_connection((HOST, port), timeout=30))
            with suppress(OSError):
                one.sendall(b"\x16\x03\x01\x00\xc8\x01\x00")
            crowd.append(one)
            if len(crowd) % HANDSHAKES == 0:
                assert get(port, files.trusting())[0] == 200
        until(lambda: sum(map(hung_up, crowd)) >= 2 * HANDSHAKES)
        assert not hung_up(crowd[-1])
        assert not hung_up(shop), "it belongs to a client that has a single one"


def hung_up(connection: socket.socket) -> bool:
    looking = select.poll()
    looking.register(connection, select.POLLRDHUP)
    return bool(looking.poll(0))


def test_a_connection_that_gives_way_is_gone_at_once(files: Files) -> None:
    """A client that never answers the end of TLS would hold its buffers for half a minute."""
    with ExitStack() as held:
        served = held.enter_context(running(SMALL, context=ReloadedTls(files.files()).context))
        crowd = []
        for _ in range(SMALL.connections + RESERVED + 1):
            plain = held.enter_context(socket.create_connection((HOST, served.port), timeout=30))
            files.trusting().wrap_socket(plain.dup(), server_hostname="localhost").detach()
            crowd.append(plain)
        until(lambda: hung_up(crowd[0]), seconds=15.0)
        assert not hung_up(crowd[-1])


def test_a_handshake_whose_bytes_drip_ends(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.telemetry.server._REQUEST_TIMEOUT_S", 0.5)
    registry, ended = CollectorRegistry(), threading.Event()
    add_build_info(registry, "up")
    with (
        closing(
            serve_http(registry, Health(), HOST, 0, context=ReloadedTls(files.files()).context)
        ) as server,
        socket.create_connection((HOST, server.port), timeout=30) as client,
    ):
        client.sendall(b"\x16\x03\x01\x3f\x00\x01")
        for _ in range(100):  # a byte every tenth of a second
            if hung_up(client):
                return
            client.sendall(b"\0")
            ended.wait(0.1)
    pytest.fail("each byte gave it more time")


@pytest.mark.parametrize("encrypted", [True, False], ids=["tls", "plain"])
def test_a_connection_that_gets_no_thread_is_hung_up_on(
    files: Files, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    def refused(server: object, *connection: object) -> None:
        raise RuntimeError("can't start new thread")

    registry = CollectorRegistry()
    add_build_info(registry, "up")
    context = ReloadedTls(files.files()).context if encrypted else None
    with closing(serve_http(registry, Health(), HOST, 0, context=context)) as server:
        with monkeypatch.context() as patched:
            patched.setattr("socketserver.ThreadingMixIn.process_request", refused)
            with socket.create_connection((HOST, server.port), timeout=30) as client:
                until(lambda: hung_up(client), seconds=10.0)
        assert len(server._server.table) == 0
        if encrypted:
            assert get(server.port, files.trusting())[0] == 200


def test_metrics_and_status_need_a_token_where_there_are_tokens(
    files: Files, port_of: object, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    right, wrong = add_token(path, "prometheus", ["metrics"]), add_token(path, "shop", ["ask"])
    port = port_of(ReloadedTls(files.files()).context, Gate(TokenFile(path)))  # type: ignore[operator]
    trusting = files.trusting()
    assert get(port, trusting, "/livez")[0] == 200
    for page in ("/metrics", "/status"):
        assert get(port, trusting, page)[0] == 401
        assert get(port, trusting, page, "tpd_other")[0] == 401
        assert get(port, trusting, page, wrong)[0] == 403
        assert get(port, trusting, page, right)[0] == 200


def test_a_role_asks_another_one_by_the_certificate_that_both_have(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.look.live._TIMEOUT_S", 60.0)  # on a busy machine two seconds are soon over
    ours, others = (
        files.files(),
        Files(tmp_path / "others") if (tmp_path / "others").mkdir() is None else None,
    )
    assert others is not None
    registry = CollectorRegistry()
    add_build_info(registry, "up")
    with closing(serve_http(registry, Health(), HOST, 0, context=ReloadedTls(ours).context)) as server:
        found = role_status(HOST, server.port, client_context(ours))
        assert found is not None
        assert found.role == "up"
        assert role_status(HOST, server.port) is None
        assert role_status(HOST, server.port, client_context(others.files())) is None


def test_the_client_of_writes_trusts_the_authority_that_it_is_given(files: Files, tmp_path: Path) -> None:
    kept, metrics, authority = Kept(), WriteMetrics(CollectorRegistry()), tmp_path / "ca.pem"
    files.ca.cert_pem.write_to_path(str(authority))
    queue = WriteQueue(kept, 10, metrics)
    with running(context=ReloadedTls(files.files()).context, writes=Writes(queue, metrics)) as served:
        url = f"https://localhost:{served.port}"
        with closing(WriteClient(url, cafile=str(authority))) as server:
            server.click(server.impression("lamp", ["o1", "o2"]), "o2")
        with pytest.raises(NotKeptError, match="certificate verify failed") as failed:
            WriteClient(url).click("l1", "o2")
        assert failed.value.status == 0
    queue.close()
    assert [record["event"] for record in kept.records] == ["impression", "click"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("certificate", "", "cannot be used for TLS"),
        ("key", "", "cannot be used for TLS"),
        ("key", None, "is not there"),
    ],
)
def test_files_that_cannot_be_used_are_named(files: Files, name: str, text: str | None, said: str) -> None:
    broken: Path = getattr(files, name)
    broken.unlink() if text is None else broken.write_text(text)
    with pytest.raises(UserError, match=said) as refused:
        ReloadedTls(files.files())
    assert refused.value.code == EX_CONFIG
