"""DBOS Transact for Python, as a library in a worker of ours. The lower half runs in DBOS's own environment."""

import json
import os
import sqlite3
import sys

VERSION = "3.4.0"


def driver():
    from peer import Library

    class Dbos(Library):
        pip = [f"dbos=={VERSION}", "psycopg[binary]==3.3.9"]
        source = "peer_dbos.py"
        modes = {"alone": "one workflow of one step, with an id of its own", "long": "one workflow of 20 steps"}
        version = staticmethod(lambda: VERSION)

    class DbosSqlite(Dbos):
        name, title, store = "dbos-sqlite", "DBOS on SQLite", "sqlite"
        settings = "`journal_mode = WAL` (it ships with a rollback journal), `synchronous = FULL`; one process, as a SQLite store has one"

        def prepare(self):
            # The mode is kept in the file.
            with sqlite3.connect(self.file()) as connection:
                connection.execute("PRAGMA journal_mode = WAL")

        def arguments(self, number):
            return {"url": f"sqlite:///{self.file()}"}

    class DbosPostgres(Dbos):
        name, title, store = "dbos-postgres", "DBOS on PostgreSQL", "postgres"
        settings = "`sys_db_pool_size = 32`, two processes; with 64 clients each has 32"
        workers_max = 2

        def prepare(self):
            self.url = self.tools.cluster().fresh(self.database)

        def arguments(self, number):
            return {"url": self.url}

    return [DbosSqlite, DbosPostgres]


def worker(arguments):
    import work
    from dbos import DBOS, SetWorkflowID

    files = f"{arguments['place']}/files"
    DBOS(config={
        "name": "compare",
        "system_database_url": arguments["url"],
        "sys_db_pool_size": 32,
        "executor_id": f"worker-{arguments['number']}",
        "application_version": "1",
        "log_level": "WARNING",
        "max_executor_threads": 128,
    })

    @DBOS.step()
    def take(act, number):
        return work.STEPS[act](files, number)

    @DBOS.workflow()
    def steps(act, number, count):
        for turn in range(count):
            last = take(act, number + turn)
        return last

    @DBOS.step()
    def act(step):
        return work.act(files, step)

    @DBOS.workflow()
    def acts(step):
        return act(step)

    DBOS.launch()

    def run(command, name, number):
        with SetWorkflowID(name):
            steps(command["act"], number, command["steps"])

    def begin(step):
        with SetWorkflowID(step):
            acts(step)

    def tell(step):
        # Asking again with the same id. A workflow that recovers by itself is waited for.
        with SetWorkflowID(step):
            said = acts(step)
        return f"{DBOS.get_workflow_status(step).status}: {said}"

    work.serve(run, begin, tell)
    # What still runs is of no interest any more.
    os._exit(0)


if __name__ == "__main__":
    # Not the peer's own name: this directory comes first in Python's path.
    worker(json.loads(sys.argv[1]))
