"""`python -m tests.benchmarks [NAME ...]`: measure, print, and write results.json beside this file.

Names: step, decode, path, kafka, checkpoints, steps, topk, freshness, swaps, items, carried, soml,
soml_kafka, omks_maps, oks, dense, arms, feed, join, start, catalog, embeddings, texts, backfill, sweep,
servers, surge, skew, balancer, shards, ann, bucket, tenants, capacity, judge; all without any. `kafka`,
`soml_kafka` and `freshness` start a broker (Java 17), `bucket` and `balancer` a server of S3's protocol
(`make buckets`), and `balancer` HAProxy (`make haproxy`). Vowpal Wabbit is measured where the interpreter
that runs this has it, or where TRIPLETD_VW_PYTHON names one that does (pip install vowpalwabbit); PyTorch
where the interpreter has it (pip install torch). `ann --objects 1000000` measures a million objects instead
of 100,000: 8 GB of memory and some ten minutes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time

from tests.benchmarks import (
    ann,
    arms,
    backfill,
    balancer,
    bucket,
    capacity,
    carried_error,
    catalog_start,
    checkpoint_cost,
    decode_speed,
    dense_step,
    embeddings_route,
    feed_rows,
    first_start,
    freshness,
    items_rate,
    join_rate,
    judging,
    kafka_path,
    oks_step,
    omks_maps,
    servers,
    shards,
    skew,
    soml_kafka,
    soml_speed,
    step_speed,
    steps_cost,
    surge,
    swaps,
    sweeping,
    tenants,
    text_model,
    topk_dense,
    topk_sparse,
    whole_path,
)
from tests.benchmarks.harness import Figure, record

COMMAND = "make bench"
NAMES = (
    *("step", "decode", "path", "kafka", "checkpoints", "steps", "topk", "freshness", "swaps", "items"),
    *(
        "carried",
        "soml",
        "soml_kafka",
        "omks_maps",
        "oks",
        "dense",
        "arms",
        "feed",
        "join",
        "start",
        "catalog",
        "embeddings",
        "texts",
        "backfill",
        "sweep",
        "servers",
        "surge",
        "skew",
        "balancer",
        "shards",
        "ann",
        "bucket",
        "tenants",
        "capacity",
        "judge",
    ),
)


def main(names: list[str]) -> int:
    """Measure the named groups of figures."""
    objects = ann.QUICK
    if "--objects" in names:
        place = names.index("--objects")
        objects = int(names[place + 1])
        names = names[:place] + names[place + 2 :]
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.stderr.write(f"no such group: {', '.join(unknown)}; use {', '.join(NAMES)}\n")
        return 64
    groups = {
        "step": lambda: step_speed.figures(_vw_python()),
        "decode": decode_speed.figures,
        "path": whole_path.figures,
        "kafka": kafka_path.figures,
        "checkpoints": checkpoint_cost.figures,
        "steps": steps_cost.figures,
        "topk": lambda: [*topk_sparse.figures(), *topk_dense.figures()],
        "freshness": freshness.figures,
        "swaps": swaps.figures,
        "items": items_rate.figures,
        "carried": carried_error.figures,
        "soml": soml_speed.figures,
        "soml_kafka": soml_kafka.figures,
        "omks_maps": omks_maps.figures,
        "oks": oks_step.figures,
        "dense": dense_step.figures,
        "arms": arms.figures,
        "feed": feed_rows.figures,
        "join": join_rate.figures,
        "start": first_start.figures,
        "catalog": catalog_start.figures,
        "embeddings": embeddings_route.figures,
        "texts": text_model.figures,
        "backfill": backfill.figures,
        "sweep": sweeping.figures,
        "servers": servers.figures,
        "surge": surge.figures,
        "skew": skew.figures,
        "balancer": balancer.figures,
        "shards": shards.figures,
        "ann": lambda: ann.figures(objects),
        "bucket": bucket.figures,
        "tenants": tenants.figures,
        "capacity": capacity.figures,
        "judge": judging.figures,
    }
    for name in names or NAMES:
        began = time.monotonic()
        figures = groups[name]()
        sys.stderr.write(f"{name}: {(time.monotonic() - began) / 60:.1f} minutes\n")
        record(figures, COMMAND)
        for figure in figures:
            _tell(figure)
    return 0


def _tell(figure: Figure) -> None:
    sys.stdout.write(f"{figure.name:28s} {figure.value:10.3f} {figure.unit}, over {figure.against}\n")
    sys.stdout.write(f"{'':28s} {', '.join(f'{k} {v:,}' for k, v in figure.detail.items())}\n")
    sys.stdout.flush()


def _vw_python() -> str | None:
    named = os.environ.get("TRIPLETD_VW_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("vowpalwabbit") is not None:
        return sys.executable
    sys.stderr.write(
        "Vowpal Wabbit is not here: oasis_step_vs_vw is left as it was (pip install vowpalwabbit)\n"
    )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
