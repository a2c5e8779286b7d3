"""LangGraph with its checkpointers, as a library in a worker of ours. The lower half runs in LangGraph's environment."""

import json
import os
import sys

VERSION, SQLITE, POSTGRES = "1.2.22", "3.1.2", "3.2.0"


def driver():
    from peer import Library

    class LangGraph(Library):
        pip = [f"langgraph=={VERSION}", f"langgraph-checkpoint-sqlite=={SQLITE}",
               f"langgraph-checkpoint-postgres=={POSTGRES}", "psycopg[binary]==3.3.9"]
        source = "peer_langgraph.py"
        modes = {"alone": "one thread (`thread_id`) with one node", "long": "one thread with 20 nodes one after the other"}

    class LangGraphSqlite(LangGraph):
        name, title, store = "langgraph-sqlite", "LangGraph, SqliteSaver", "sqlite"
        settings = '`durability = "sync"`; the saver sets WAL, SQLite\'s default is `synchronous = FULL`'
        version = staticmethod(lambda: f"{VERSION} with {SQLITE}")

        def arguments(self, number):
            return {"sqlite": str(self.file())}

    class LangGraphPostgres(LangGraph):
        name, title, store = "langgraph-postgres", "LangGraph, PostgresSaver", "postgres"
        settings = '`durability = "sync"`, a pool of 32 connections a process, two processes with 32 clients each'
        version = staticmethod(lambda: f"{VERSION} with {POSTGRES}")
        workers_max = 2

        def prepare(self):
            self.url = self.tools.cluster().fresh(self.database)

        def arguments(self, number):
            return {"postgres": self.url}

    return [LangGraphSqlite, LangGraphPostgres]


def saver(arguments):
    if "sqlite" in arguments:
        import sqlite3
        from langgraph.checkpoint.sqlite import SqliteSaver

        made = SqliteSaver(sqlite3.connect(arguments["sqlite"], check_same_thread=False, timeout=30))
    else:
        from langgraph.checkpoint.postgres import PostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        made = PostgresSaver(ConnectionPool(arguments["postgres"], min_size=1, max_size=32, kwargs=settings))
    if arguments["number"] == 0:
        made.setup()
    return made


def worker(arguments):
    import work
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph

    files = f"{arguments['place']}/files"

    class State(TypedDict):
        act: str
        number: int
        result: str

    def graph(nodes, function, checkpointer):
        made = StateGraph(State)
        names = [f"step{number}" for number in range(nodes)]
        for name in names:
            made.add_node(name, function)
        for before, after in zip([START, *names], [*names, END]):
            made.add_edge(before, after)
        return made.compile(checkpointer=checkpointer)

    def take(state):
        return {"result": str(work.STEPS[state["act"]](files, state["number"])), "number": state["number"] + 1}

    def act(state):
        return {"result": work.act(files, state["act"])}

    def at(name):
        # The limit on steps of a graph is 25 unless it is named.
        return {"configurable": {"thread_id": name}, "recursion_limit": 100}

    checkpointer = saver(arguments)
    graphs = {count: graph(count, take, checkpointer) for count in (1, 20)}
    acting = graph(1, act, checkpointer)

    def run(command, name, number):
        start = {"act": command["act"], "number": number, "result": ""}
        graphs[command["steps"]].invoke(start, at(name), durability="sync")

    def begin(step):
        acting.invoke({"act": step, "number": 0, "result": ""}, at(step), durability="sync")

    def tell(step):
        # Nothing goes on by itself: whoever started the graph resumes it, with no input.
        waits = acting.get_state(at(step)).next
        said = acting.invoke(None, at(step), durability="sync")
        return f"next node {list(waits)}, resumed: {said['result'] if said else said}"

    work.serve(run, begin, tell)
    os._exit(0)


if __name__ == "__main__":
    worker(json.loads(sys.argv[1]))
