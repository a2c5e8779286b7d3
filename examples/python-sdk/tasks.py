"""The Tasks extension for the Python SDK's client: a call that waits for a person becomes a task, and the task
is asked after until it has ended. The task's id is the run's: `stepgate runs show ID` shows the same thing.
"""

import asyncio
from typing import Any, Literal

from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.types import CallToolResult, Request, RequestParams, Result

SECONDS_BETWEEN_QUESTIONS = 1.0
ENDED = ("completed", "failed", "cancelled")


class CreatedTask(Result):
    """What a call answers that has become a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    poll_interval_ms: int | None = None


class Task(Result):
    """What is known of a task."""

    task_id: str
    status: str
    status_message: str | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class TaskParams(RequestParams):
    task_id: str


class GetTask(Request[TaskParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams
    name_param = "taskId"


class Tasks(ClientExtension):
    """Declares the extension, and follows tasks to their end."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, tell):
        self.tell = tell

    def claims(self):
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self.follow)]

    async def follow(self, created: CreatedTask, context: ClaimContext) -> CallToolResult:
        self.tell(f"task {created.task_id}: {created.status}")
        return await follow(context.session, created.task_id, created.poll_interval_ms)


async def follow(session, task_id, poll_interval_ms=None):
    """Asks until the task has ended. Works for a task of an earlier connection, and of an earlier gateway."""
    pause = poll_interval_ms / 1000 if poll_interval_ms else SECONDS_BETWEEN_QUESTIONS
    while True:
        task = await session.send_request(GetTask(params=TaskParams(task_id=task_id)), Task)
        if task.status in ENDED:
            break
        await asyncio.sleep(pause)
    if task.result is not None:
        return CallToolResult.model_validate(task.result)
    raise RuntimeError(f"task {task_id} {task.status}: {task.error or task.status_message}")
