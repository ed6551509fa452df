"""TLS as the settings want it, and what a failed handshake means."""

from __future__ import annotations

import ssl

from streams.errors import StreamRefused
from streams.kafka.settings import KafkaSettings

_EXPIRED, _NOT_YET, _HOST, _ADDRESS = 10, 9, 62, 64  # OpenSSL's X509_V_ERR_*


def uses_tls(settings: KafkaSettings) -> bool:
    """Whether the security protocol has TLS."""
    return settings.security_protocol in ("SSL", "SASL_SSL")


def client_context(settings: KafkaSettings) -> ssl.SSLContext:
    """The context of a client; raises StreamRefused naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = settings.ssl_check_hostname
    try:
        if settings.ssl_cafile:
            context.load_verify_locations(settings.ssl_cafile)
        else:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as problem:
        raise _file_refused("ssl_cafile", settings.ssl_cafile, problem) from problem
    if settings.ssl_certfile:
        # A function that gives no password keeps OpenSSL from asking for one on the terminal.
        password = settings.ssl_key_password or ""
        try:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, lambda: password)
        except (OSError, ssl.SSLError) as problem:
            raise _file_refused("ssl_certfile and ssl_keyfile", _pair(settings), problem) from problem
    return context


def any_certificate() -> ssl.SSLContext:
    """A context that trusts everybody: only to learn who speaks TLS, nothing of ours is said over it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def certificate_refused(place: str, settings: KafkaSettings, problem: ssl.SSLCertVerificationError) -> str:
    """What is wrong with the broker's certificate, and the remedy."""
    match problem.verify_code:
        case code if code == _EXPIRED:
            return f"the certificate of {place} has expired: renew it, or correct this machine's clock"
        case code if code == _NOT_YET:
            return f"the certificate of {place} is not valid yet: correct this machine's clock, or renew it"
        case code if code in (_HOST, _ADDRESS):
            return (
                f"the certificate of {place} is for another host: use a host name that it lists, "
                "or set ssl_check_hostname = false where the network is trusted"
            )
    if settings.ssl_cafile:
        return (
            f"the certificate of {place} is not signed by an authority in ssl_cafile "
            f"({settings.ssl_cafile}): name the file of the authority that signed it"
        )
    return (
        f"the certificate of {place} is not signed by an authority that this machine trusts: "
        "set ssl_cafile to the file of the authority that signed it"
    )


def client_certificate_refused(place: str, settings: KafkaSettings) -> str:
    """The broker ended TLS with an alert after it saw, or did not see, our certificate."""
    if settings.ssl_certfile:
        return (
            f"{place} does not accept the certificate in ssl_certfile ({settings.ssl_certfile}): "
            "use one signed by an authority that the broker trusts"
        )
    return f"{place} asks for a client certificate: set ssl_certfile and ssl_keyfile"


def _pair(settings: KafkaSettings) -> str:
    return ", ".join(file for file in (settings.ssl_certfile, settings.ssl_keyfile) if file)


def _file_refused(setting: str, file: str | None, problem: OSError) -> StreamRefused:
    if isinstance(problem, ssl.SSLError):
        what = problem.reason or "it is not PEM"
        return StreamRefused(
            f"{setting} ({file}) cannot be used ({what}): it must be PEM, the key must belong to the "
            "certificate, and an encrypted key needs its ssl_key_password"
        )
    return StreamRefused(
        f"{setting} ({file}) cannot be read ({problem.strerror}): correct the path or its owner"
    )
