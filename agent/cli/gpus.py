"""`gpuagent gpus`: the GPUs, and who holds their memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import click

from agent.cli.client import Document
from agent.cli.options import json_option, print_json, the_agent
from agent.cli.text import age, plain, utc_now

MIB_PER_GIB = 1024


@click.command(short_help="Show the GPUs, and who holds their memory.")
@json_option
@click.pass_context
def gpus(ctx: click.Context, as_json: bool) -> None:
    """Show the GPUs, their memory, and who holds it: servers, units, containers, stray processes; or why they cannot
    be looked at.
    """
    document = the_agent(ctx).gpus()
    if as_json:
        print_json(document)
        return
    for line in _lines(document, utc_now()):
        click.echo(line)


def _lines(document: Document, now: datetime) -> Iterator[str]:
    if document["state"] == "not_read":
        yield "the GPUs have not been read yet: ask again in a moment"
        return
    yield from _fault("GPUs", document)
    for gpu in document["devices"]:
        yield from _gpu(gpu, now)


def _fault(what: str, document: Document) -> Iterator[str]:
    """What is wrong, and what to do; nothing where all is well."""
    if document["state"] != "ok":
        yield click.style(f"{what}: {plain(document['state']).replace('_', ' ')}: {plain(document['why'])}", fg="red")
        yield f"  remedy: {plain(document['remedy'])}"


def _gpu(gpu: Document, now: datetime) -> Iterator[str]:
    facts = [f"GPU {gpu['index']}", plain(gpu["name"] or "unnamed"), _memory(gpu)]
    facts += [f"{gpu[key]:.0f} {unit}" for key, unit in _FACTS.items() if gpu[key] is not None]
    yield "  ".join([*facts, plain(gpu["uuid"])])
    yield from _fault(f"  GPU {gpu['index']}", gpu)
    if gpu["holders"] is None:
        yield "    who holds its memory is not known"
    for holder in sorted(gpu["holders"] or (), key=lambda each: each["mib"] or 0, reverse=True):
        yield f"    {_holder(holder, now)}"
    yield from (f"    not known: {plain(fault['field'])}: {plain(fault['text'])}" for fault in gpu["faults"])


_FACTS = {"busy_percent": "% busy", "celsius": "C", "watts": "W"}


def _memory(gpu: Document) -> str:
    if gpu["used_mib"] is None or gpu["free_mib"] is None:
        return "memory not known"
    return f"{gib(gpu['used_mib'])} used, {gib(gpu['free_mib'])} free"


def gib(mib: int) -> str:
    """An amount of memory, for a person."""
    return f"{mib / MIB_PER_GIB:.1f} GiB"


def _holder(holder: Document, now: datetime) -> str:
    amount = "?" if holder["mib"] is None else gib(holder["mib"])
    words = [amount.rjust(9), f"{plain(holder['kind']).replace('_', ' ')} {plain(holder['owner'])}".rstrip()]
    words += [f"pid {holder['pid']}", plain(holder["name"]), plain(holder["user"])]
    words += [f"for {age(holder['since'], now)}"] if holder["since"] else []
    words += [f"(never signalled: {plain(holder['protected'])})"] if holder["protected"] else []
    return "  ".join(word for word in words if word)
