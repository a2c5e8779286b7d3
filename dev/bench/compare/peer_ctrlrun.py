"""CTRLRun, as a library in a worker of ours. The lower half runs in CTRLRun's own environment."""

import json
import os
import sys

VERSION = "0.12.2"

POLICY = """\
schema: ctrlrun.policy/v2
actions:
  compare.take:
    rules:
      - decision: allow
  compare.act:
    rules:
      - decision: allow
"""


def driver():
    from peer import Library

    class CtrlRun(Library):
        pip = [f"ctrlrun[postgres]=={VERSION}", "psycopg[binary]==3.3.9"]
        source = "peer_ctrlrun.py"
        kills = {"default": "a lease of 5 s (it ships with 5 minutes)"}
        modes = {"alone": "one protected call, with an effect key of its own"}
        version = staticmethod(lambda: VERSION)

        def write_policy(self):
            (self.place / "ctrlrun.yaml").write_text(POLICY, encoding="utf-8")

        def prepare(self):
            self.write_policy()

    class CtrlRunSqlite(CtrlRun):
        name, title, store = "ctrlrun-sqlite", "CTRLRun on SQLite, flushed", "sqlite"
        settings = "`synchronous = FULL`, which it does not offer: our worker changes the pragma when it connects"
        full = True

        def arguments(self, number):
            return {"sqlite": str(self.file()), "full": self.full}

    class CtrlRunShipped(CtrlRunSqlite):
        name, title = "ctrlrun-shipped", "CTRLRun on SQLite, as it ships"
        settings = "`synchronous = NORMAL`: its commits are not flushed, and a loss of power can take the last ones back"
        full = False
        kills = {}

    class CtrlRunPostgres(CtrlRun):
        name, title, store = "ctrlrun-postgres", "CTRLRun on PostgreSQL", "postgres"
        settings = "two processes; with 64 clients each has 32"
        workers_max = 2

        def prepare(self):
            self.write_policy()
            self.url = self.tools.cluster().fresh(self.database)

        def arguments(self, number):
            return {"postgres": self.url}

    return [CtrlRunShipped, CtrlRunSqlite, CtrlRunPostgres]


def store(arguments):
    if "postgres" in arguments:
        from ctrlrun.postgres import PostgresStateStore

        return PostgresStateStore(arguments["postgres"])
    from ctrlrun import SQLiteStateStore

    if not arguments["full"]:
        return SQLiteStateStore(arguments["sqlite"])

    class Flushed(SQLiteStateStore):
        def _connection(self):
            connection = super()._connection()
            if getattr(self._local, "full", None) is not connection:
                connection.execute("PRAGMA synchronous=FULL")
                self._local.full = connection
            return connection

    return Flushed(arguments["sqlite"])


def worker(arguments):
    import work
    from datetime import timedelta

    import ctrlrun

    files = f"{arguments['place']}/files"
    held = store(arguments)
    policy = ctrlrun.Policy.from_file(f"{arguments['place']}/ctrlrun.yaml")
    # No sink: the receipts are in the store.
    control = ctrlrun.Control(policy, held, ctrlrun.LocalApprovalProvider(held))

    @ctrlrun.protect("compare.take", effect="take:{name}", control=control)
    def take(name: str, act: str, number: int):
        return work.STEPS[act](files, number)

    # A short lease, so that the test sees its end.
    @ctrlrun.protect("compare.act", effect="act:{step}", control=control, lease=timedelta(seconds=5))
    def act(step: str):
        return work.act(files, step)

    def run(command, name, number):
        with ctrlrun.context(agent="compare"):
            take(name=name, act=command["act"], number=number)

    def begin(step):
        with ctrlrun.context(agent="compare"):
            act(step=step)

    def tell(step):
        try:
            with ctrlrun.context(agent="compare"):
                return f"answered: {act(step=step)}"
        except ctrlrun.CTRLRunError as error:
            return f"{type(error).__name__}: {error}"

    work.serve(run, begin, tell)
    os._exit(0)


if __name__ == "__main__":
    worker(json.loads(sys.argv[1]))
