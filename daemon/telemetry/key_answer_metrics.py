"""What serving one model per key does, as numbers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class KeyAnswerMetrics:
    """Families that stay at nothing where there is one model for all. Any thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._held = Gauge(
            "tripletd_key_models",
            "Models of single keys ready to answer",
            registry=registry,
        )
        self._made = Counter(
            "tripletd_key_models_made",
            "Models of single keys made when asked",
            registry=registry,
        )
        self._answers = Counter(
            "tripletd_key_answers",
            "Keys answered in a pass over the objects, by their own model or by version 0",
            ["model"],
            registry=registry,
        )
        for model in ("own", "version_0"):
            self._answers.labels(model)

    def made(self, held: int) -> None:
        """A model was made; now so many are held."""
        self._made.inc()
        self._held.set(held)

    def answered(self, model: str) -> None:
        """Queries of a key are being answered by this model."""
        self._answers.labels(model).inc()
