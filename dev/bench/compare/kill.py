"""The kill test: every process of a peer is killed between the act and its record, and the tool itself counts its acts."""

import collections
import shutil
import time

import machine

STEPS = 5
# How long a peer may take to go on by itself, and a client waits when it asks again.
RECOVERY_SECONDS = 15
ANSWER_SECONDS = 20


def effects(peer):
    path = peer.files / "effects"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return collections.Counter(line for line in lines if line.startswith("kill-"))


def kill_test(peer, way, say):
    """Steps act and hang; the peer is killed and started again; then their client asks again."""
    peer.kill_way = way
    names = [f"kill-{number}" for number in range(STEPS)]
    peer.clear()
    killed = False
    try:
        peer.start()
        (peer.files / "hold").touch()
        for name in names:
            peer.begin(name)
        machine.until(lambda: len(effects(peer)) == STEPS, 30, f"{peer.name}: all steps act")
        peer.kill()
        killed = True
        (peer.files / "hold").unlink()
        killed = False
        peer.start()
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline and min(effects(peer)[name] for name in names) < 2:
            time.sleep(0.2)
        by_itself = [effects(peer)[name] for name in names]
        operator = peer.after_restart()
        told = [str(peer.tell(name, ANSWER_SECONDS)) for name in names]
        time.sleep(1)
        asked = [effects(peer)[name] for name in names]
    finally:
        if not killed:
            peer.end()
    shutil.rmtree(peer.place, ignore_errors=True)
    say(f"{peer.name} ({way}): effects {by_itself}, asked again {asked}, told {told[0]}")
    return {"peer": peer.name, "way": way, "effects_after_restart": by_itself, "effects_after_asking": asked,
            "told": told, "operator": operator}
