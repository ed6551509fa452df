"""`tripletd demo`."""

from __future__ import annotations

import shutil
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
    from daemon.demo.pack_files import load_pack, require_pack

    require_pack()
    from daemon.demo.page import free_ports, stay, visitor, write_photos
    from daemon.demo.report import ALL_LEARNED, TIME_LIMIT, Reporter, print_report
    from daemon.demo.run import DemoRun, ended_by_sigterm, write_settings
    from daemon.demo.screen import Screen, introduction, reopening

    _prepare(out)
    notes, results = Console(stderr=True, highlight=False), Console(highlight=False)
    notes.print(introduction(out))
    ports = free_ports()
    write_photos(out)
    settings = write_settings(out, ports, followed=keep)
    asking: AbstractContextManager[None] = nullcontext()
    with ended_by_sigterm():
        run, pack = DemoRun(out, settings, seed), load_pack()
        if keep:  # somebody asks, so that freshness can be measured
            notes.print(f"Watch it learn: {ports.url}\n")
            asking = visitor(ports.host, ports.serve, pack.catalog.ids, seed)
        with run.serving(keep) as serving:
            with run.processes() as roles, asking, Screen(notes).open() as screen:
                for newest in run.watch(roles | serving):
                    screen.show(newest)
            notes.print("\nLearning has ended; both rankings are measured on the photos held out ...")
            look, reporter = run.look(), Reporter(load_config(settings), run.versions, pack)
            report = reporter.report(look, TIME_LIMIT if run.out_of_time else ALL_LEARNED)
            print_report(report, reporter.write(look.curves, report, out), results)
            if keep:
                stay(ports.url, serving["serve"], out / "serve.log", notes)
            else:
                notes.print(reopening(settings, ports.url))
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
