"""Whether what was fetched belongs to the topic that was opened.

librdkafka reads on, at the old position, from a topic that was deleted and created again. The topic's id is
therefore asked for after every fetch and before anything of it is handed out: ids never come back, so that
everything fetched before an answer with the old id belongs to the old topic. About 0.3 ms each.
"""

from __future__ import annotations

import base64
import uuid

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streams.address import Address
from streams.errors import StreamUnavailable
from streams.kafka.clients.confluent_common import make
from streams.kafka.clients.protocol import recreated
from streams.kafka.connect import settings_of


class SameTopic:
    """Asks for the id of one topic; connects when it is asked first."""

    def __init__(self, address: Address, topic_id: str) -> None:
        self._address, self._topic_id = address, topic_id
        self._timeout_s = settings_of(address).timeout_s
        self._client: AdminClient | None = None

    def check(self) -> None:
        """Raises LogMismatch when the topic was removed or re-created, StreamUnavailable without answer."""
        if self._client is None:
            self._client = make(AdminClient, self._address, {})
        found = self._id(self._client)
        if found != self._topic_id:
            raise recreated(self._address, self._topic_id, found)

    def _id(self, client: AdminClient) -> str | None:
        topic = self._address.topic
        asked = client.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)[topic]
        try:
            found = asked.result(self._timeout_s)
        except KafkaException as problem:
            error = problem.args[0]
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise StreamUnavailable(f"{self._address}: {error.str()}") from problem
        except TimeoutError as problem:
            raise StreamUnavailable(f"{self._address}: no answer about the topic's id") from problem
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(f"{found.topic_id}==")))
