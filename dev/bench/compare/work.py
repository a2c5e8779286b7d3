"""The work of a step, and the worker that Python peers run it in.

A worker is a process of its own, run by the Python that the peer is installed in. It reads one JSON command a line
from standard input and answers each with one JSON line. Only the standard library is used here.
"""

import asyncio
import json
import os
import queue
import sys
import threading
import time

CONTENT = "The quick brown fox jumps over the lazy dog, durably and exactly once.\n"
# So many files are written in turns, so that a file is seldom written again at once.
FILES = 1024


def read(place, _number):
    with open(f"{place}/read.txt", encoding="utf-8") as file:
        return file.read()


def write(place, number):
    """Replaces one file durably: write, flush, rename, flush the directory."""
    path = f"{place}/w{number % FILES}.txt"
    # Other workers have the same numbers.
    with open(f"{path}.{os.getpid()}.{number}.new", "w", encoding="utf-8") as file:
        file.write(CONTENT)
        file.flush()
        os.fsync(file.fileno())
    os.rename(file.name, path)
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return len(CONTENT)


STEPS = {"read": read, "write": write}


def act(place, step):
    """The act of the kill test: one line with the step's name, flushed; then it hangs while the file `hold` is there."""
    line = os.open(f"{place}/effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(line, f"{step}\n".encode())
    os.fsync(line)
    os.close(line)
    deadline = time.monotonic() + 120
    while os.path.exists(f"{place}/hold") and time.monotonic() < deadline:
        time.sleep(0.05)
    return "done"


def threads(run, command):
    """Clients are threads. Each takes its next run when it has the last one's answer."""
    latencies, failures, lock = [], [], threading.Lock()
    start = time.monotonic()
    end = start + command["seconds"]

    def client(number):
        mine, count = [], 0
        try:
            while time.monotonic() < end:
                begun = time.perf_counter()
                run(command, f"{command['prefix']}-{number}-{count}", number + count * command["clients"])
                mine.append(time.perf_counter() - begun)
                count += 1
        except Exception as error:  # the driver shows it and gives up
            failures.append(repr(error))
        with lock:
            latencies.extend(mine)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(command["clients"])]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return answer(latencies, failures, time.monotonic() - start)


async def tasks(run, command):
    """The same, where clients are tasks of an event loop."""
    latencies, failures = [], []
    start = time.monotonic()
    end = start + command["seconds"]

    async def client(number):
        count = 0
        try:
            while time.monotonic() < end:
                begun = time.perf_counter()
                await run(command, f"{command['prefix']}-{number}-{count}", number + count * command["clients"])
                latencies.append(time.perf_counter() - begun)
                count += 1
        except Exception as error:
            failures.append(repr(error))

    await asyncio.gather(*(client(number) for number in range(command["clients"])))
    return answer(latencies, failures, time.monotonic() - start)


def answer(latencies, failures, seconds):
    return {"latencies": latencies, "failures": failures[:3], "seconds": seconds}


def commands():
    for line in sys.stdin:
        yield json.loads(line)


def reply(value):
    # Other threads of the peer may print, so the line is marked.
    sys.stdout.write("=> " + json.dumps(value) + "\n")
    sys.stdout.flush()


def serve(run, begin, tell):
    """Threads: `run` takes one run, `begin` starts one that hangs, `tell` says what the peer knows of it."""
    reply("ready")
    for command in commands():
        match command["do"]:
            case "run":
                reply(threads(run, command))
            case "begin":
                threading.Thread(target=begin, args=(command["step"],), daemon=True).start()
                reply("begun")
            case "tell":
                reply(patiently(tell, command["step"], command["patience"]))
            case "stop":
                reply("stopped")
                return


def patiently(tell, step, seconds):
    """What `tell` says of the step. A call that hangs is an answer, too."""
    said = queue.Queue()
    threading.Thread(target=lambda: said.put(tell(step)), daemon=True).start()
    try:
        return said.get(timeout=seconds)
    except queue.Empty:
        return "no answer"


async def serve_async(run, begin, tell):
    """The same in an event loop."""
    loop = asyncio.get_running_loop()
    reply("ready")
    begun = []
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        match command["do"]:
            case "run":
                reply(await tasks(run, command))
            case "begin":
                begun.append(asyncio.create_task(begin(command["step"])))
                reply("begun")
            case "tell":
                try:
                    reply(await asyncio.wait_for(tell(command["step"]), command["patience"]))
                except (TimeoutError, asyncio.TimeoutError):
                    reply("no answer")
            case "stop":
                reply("stopped")
                return
