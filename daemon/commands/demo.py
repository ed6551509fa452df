"""`tripletd demo`."""

from __future__ import annotations

import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from daemon.exits import EX_CANTCREAT, EX_OK, UserError

MARK = ".tripletd-demo"

Seed = Annotated[int, typer.Option(min=0, help="Seed of the simulated users.")]


def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the run is kept.")] = Path("demo-run"),
    seed: Seed = 0,
    keep: Annotated[
        bool, typer.Option("--keep", metavar="", help="Serve the page, also afterwards.")
    ] = False,
) -> int:
    """Learn from simulated clicks over real photos, and show what it changed."""
    from rich.console import Console

    from daemon.config import load_config
    from daemon.demo.pack_files import load_pack
    from daemon.demo.page import free_ports, stay, visitor, write_photos
    from daemon.demo.report import Reporter, print_report
    from daemon.demo.run import LIMIT_SECONDS, DemoRun, ended_by_sigterm
    from daemon.demo.screen import Screen
    from daemon.demo.settings import write_settings

    _prepare(out)
    ports = free_ports() if keep else None
    if ports is not None:
        write_photos(out)
    settings = write_settings(out, ports)
    notes, results = Console(stderr=True, highlight=False), Console(highlight=False)
    notes.print(
        "Real photos of clothes with real classes; the clicks are simulated. A list shows the 5 nearest "
        "photos and 5 drawn uniformly, shuffled; rank r is examined with probability 1/sqrt(r) and clicked "
        "with 0.8 when of the query's class, 0.1 otherwise. Users, feed, learn and validate run as processes "
        f"of their own; their logs are in {out}.\n"
    )
    if ports is not None:
        notes.print(f"Watch it learn: {ports.url}\n")
    run, pack = DemoRun(out, settings, seed), load_pack()
    asking: AbstractContextManager[None] = nullcontext()
    if ports is not None:  # somebody asks, so that freshness can be measured
        asking = visitor(ports.host, ports.serve, pack.catalog.ids, seed)
    with ended_by_sigterm(), run.serving(keep) as beside:
        with run.processes() as roles, asking, Screen(notes).open() as screen:
            for look in run.watch(roles | beside):
                screen.show(look)
        curves = run.look().curves
        reporter = Reporter(load_config(settings), run.versions, pack)
        if run.out_of_time:
            notes.print(f"\nLearning did not stop by itself in {LIMIT_SECONDS:.0f} s: here is what it has.")
        report = reporter.report(curves, "time limit" if run.out_of_time else "end of clicks")
        print_report(report, reporter.pictures(curves, report, out), results)
        sys.stdout.write(report.to_json() + "\n")
        sys.stdout.flush()
        if ports is not None:
            stay(ports.url, beside["serve"], out / "serve.log", notes)
    return EX_OK


def _prepare(out: Path) -> None:
    """An empty folder: a former demo's is replaced, anything else is left alone. UserError."""
    if out.exists() and not (out / MARK).exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            f"{out} exists and is not a demo's folder", "name another one with --out", EX_CANTCREAT
        )
    try:
        if out.exists():
            shutil.rmtree(out)
        out.mkdir(parents=True)
        (out / MARK).touch()
    except OSError as error:
        raise UserError(
            f"{out}: {error.strerror}", "name a folder that can be written with --out", EX_CANTCREAT
        ) from None
