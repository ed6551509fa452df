"""One node behind TLS, passwords and permissions, with a right and several wrong doors."""

from __future__ import annotations

import time
from pathlib import Path

from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)

from streams.source import KafkaSettings
from tests.harness.kafka.certificates import Authority
from tests.harness.kafka.cluster import Cluster
from tests.harness.kafka.properties import HOST, Listener

USER, PASSWORD = "learner", "a-password-that-must-not-be-told"
MECHANISM = "SCRAM-SHA-512"
_SCRAM = {
    "sasl.enabled.mechanisms": MECHANISM,
    "scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
}
_PLAIN = {
    "sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
    "plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}";',
}


class Secured:
    """A cluster not yet started, and what a client needs to be let in.

    Doors: SASL_SSL (the right one), TLS (no password), MUTUAL (a client certificate instead), PASSWORDS (SASL
    without TLS, also PLAIN), EXPIRED and STRANGER (SASL_SSL, with a certificate that is out of date or names
    another host), ASTRAY (plain, and sends its clients on to a host that there is not).
    Administration goes through the plain door, whose nameless user may do everything.
    """

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.stranger = Authority(folder, "stranger-ca")
        self.client_certificate = self.authority.issue("client", "client.test", user=USER)
        hosts = (HOST, "localhost")
        good = self._tls(self.authority.issue("good", *hosts))
        expired = self._tls(self.authority.issue("expired", *hosts, expired=True))
        other_host = self._tls(self.authority.issue("other", "other.test"))
        doors = [
            Listener("SASL_SSL", "SASL_SSL", good | _SCRAM),
            Listener("TLS", "SSL", good),
            Listener("MUTUAL", "SSL", good | {"ssl.client.auth": "required"}),
            Listener("PASSWORDS", "SASL_PLAINTEXT", _SCRAM | _PLAIN),
            Listener("EXPIRED", "SASL_SSL", expired | _SCRAM),
            Listener("STRANGER", "SASL_SSL", other_host | _SCRAM),
            Listener("ASTRAY", "PLAINTEXT", advertised="no-such-host.invalid:9092"),
        ]
        self.cluster = Cluster(
            listeners=doors,
            extra={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:admin",
                "sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
                "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/",
            },
            scram=[f"{MECHANISM}=[name={user},password={PASSWORD}]" for user in (USER, "admin", "nobody")],
        )

    @property
    def settings(self) -> KafkaSettings:
        """What is right for the door SASL_SSL."""
        return KafkaSettings(
            security_protocol="SASL_SSL",
            sasl_mechanism=MECHANISM,
            sasl_username=USER,
            sasl_password=PASSWORD,
            ssl_cafile=str(self.authority.cafile),
        )

    def door(self, name: str = "SASL_SSL") -> str:
        """`host:port` of that door."""
        return self.cluster.servers(name)

    def allow(self, *operations: str, topic: str, user: str = USER) -> None:
        """Permit operations on a topic (`*`: on all); CREATE on `*` means the cluster's."""
        self._grant(operations, ResourceType.TOPIC, topic, user)

    def allow_group(self, *operations: str, group: str, user: str = USER) -> None:
        """Permit operations on a consumer group."""
        self._grant(operations, ResourceType.GROUP, group, user)

    def _grant(self, operations: tuple[str, ...], kind: ResourceType, name: str, user: str) -> None:
        wanted = [
            ACL(
                principal=f"User:{user}",
                host="*",
                operation=ACLOperation[operation],
                permission_type=ACLPermissionType.ALLOW,
                resource_pattern=ResourcePattern(kind, name),
            )
            for operation in operations
        ]
        pattern = ResourcePatternFilter(kind, name, ACLResourcePatternType.LITERAL)
        these = ACLFilter(f"User:{user}", None, ACLOperation.ANY, ACLPermissionType.ANY, pattern)
        with self.cluster.admin() as admin:
            assert not admin.create_acls(wanted)["failed"]
            while not set(wanted) <= set(
                admin.describe_acls(these)[0]
            ):  # a broker hears of it a little later
                time.sleep(0.02)

    def _tls(self, certificate: Path) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.cafile),
        }
