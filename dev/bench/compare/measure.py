"""Rounds: each peer from an empty store, one after the other, and Stepgate in the same round."""

import re
import shutil
import signal
import subprocess
import time

import machine
import peer_stepgate

CLIENTS = (1, 64)


def cells(peer):
    """What is measured of a peer: how a client asks, what a step does, and how many clients there are."""
    for mode in peer.modes:
        for act in ("read", "write") if mode == "alone" else ("read",):
            for clients in CLIENTS:
                yield mode, act, clients


def round_of(peer, seconds, say):
    """One round. The peer's processes stay up for all of it; each cell has its own figures."""
    peer.clear()
    found = []
    try:
        peer.start()
        for mode in peer.modes:
            peer.measure(mode, "read", 8, 1)
        for mode, act, clients in cells(peer):
            cell = cell_of(peer, mode, act, clients, seconds)
            say(f"{peer.name} {mode} {act} {clients}: {cell['steps_per_second']:.0f} steps/s, p99 {cell['p99_ms']:.1f} ms")
            found.append(cell)
    finally:
        peer.end()
    shutil.rmtree(peer.place, ignore_errors=True)
    return found


def cell_of(peer, mode, act, clients, seconds):
    roots = peer.roots()
    before = machine.cpu_seconds(roots), machine.written_bytes(roots), peer.kept_bytes()
    figures = peer.measure(mode, act, clients, seconds)
    after = machine.cpu_seconds(roots), machine.written_bytes(roots), peer.kept_bytes()
    of_run = peer.steps[mode]
    steps = figures["runs"] * of_run
    cpu, written, kept = ((late - early) / steps for early, late in zip(before, after))
    return {
        "peer": peer.name, "mode": mode, "act": act, "clients": clients, "steps": steps, "seconds": figures["seconds"],
        "steps_per_second": steps / figures["seconds"],
        # A step of a long run: its part of the run.
        "p50_ms": figures["p50_ms"] / of_run, "p99_ms": figures["p99_ms"] / of_run,
        "cpu_ms_per_step": cpu * 1000, "written_bytes_per_step": written, "kept_bytes_per_step": kept,
    }


def bench_of(tools, is_quick, say):
    """Stepgate in process, with the append-only file of the same bytes in the same round."""
    found = peer_stepgate.bench(tools, None, CLIENTS, 500 if is_quick else 2500)
    for one in found:
        say(f"stepgate in process {one['action']} {one['clients']}: {one['steps_per_second']:.0f} steps/s, "
            f"file {one['append_only_steps_per_second']:.0f}")
    return found


def flushes_of(peer, seconds=2):
    """How often a peer flushes for one step of one client, counted by strace. None without strace.

    What it does beside steps is in it, too, so it can be a little more than a step needs."""
    if shutil.which("strace") is None:
        return None
    peer.clear()
    try:
        peer.start()
        peer.measure("alone", "read", 1, 1)
        pids = machine.tree(peer.roots())
        attach = [argument for pid in pids for argument in ("-p", str(pid))]
        command = ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync,sync_file_range,msync", *attach]
        trace = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        time.sleep(1)
        runs = peer.measure("alone", "read", 1, seconds)["runs"]
        trace.send_signal(signal.SIGINT)
        table = trace.communicate(timeout=30)[1]
    finally:
        peer.end()
    shutil.rmtree(peer.place, ignore_errors=True)
    calls = {}
    for line in table.splitlines():
        if match := re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(f\w+|sync_file_range|msync)$", line):
            calls[match[2]] = int(match[1])
    return {"peer": peer.name, "runs": runs, "calls": calls, "flushes_per_step": sum(calls.values()) / runs}
