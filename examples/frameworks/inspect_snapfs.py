"""Sandboxes of snapfs for inspect_ai: import this module, and use Task(sandbox="snapfs").

Each sample gets a copy of this machine, whose working directory is SNAPFS_WORKSPACE (by default that of the server).
"""

import os

import anyio.to_thread
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from inspect_ai.util._sandbox.environment import SandboxUserUnsupportedError

from snapfs_api import Problem, Sandbox


@sandboxenv(name="snapfs")
class SnapfsSandbox(SandboxEnvironment):
    def __init__(self, sandbox):
        super().__init__()
        self.sandbox = sandbox

    @classmethod
    async def sample_init(cls, task_name, config, metadata):
        workspace = os.environ.get("SNAPFS_WORKSPACE")
        options = {"workspace": workspace} if workspace else {}
        return {"default": cls(await anyio.to_thread.run_sync(lambda: Sandbox(**options)))}

    @classmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted):
        for environment in environments.values():
            await anyio.to_thread.run_sync(environment.sandbox.remove)

    async def exec(
        self, cmd, input=None, cwd=None, env=None, user=None, timeout=None, timeout_retry=True, concurrency=True
    ):
        if user is not None:
            raise SandboxUserUnsupportedError("a sandbox of snapfs has one user")
        stdin = input.encode() if isinstance(input, str) else input or b""
        try:
            r = await anyio.to_thread.run_sync(lambda: self.sandbox.exec(cmd, stdin, cwd or ".", env, timeout))
        except Problem as problem:
            if problem.document.get("kind") == "permission denied":
                raise PermissionError(str(problem)) from problem
            raise
        if r["timed_out"]:
            raise TimeoutError(f"the command has run for {timeout} s")
        out, err = r["stdout"].decode(errors="replace"), r["stderr"].decode(errors="replace")
        if r["stdout_left_out"] or r["stderr_left_out"]:
            raise OutputLimitExceededError("4 MiB", out)
        return ExecResult(r["exit"] == 0, r["exit"], out, err)

    async def write_file(self, file, contents):
        data = contents.encode() if isinstance(contents, str) else contents
        await self._file(file, lambda: self.sandbox.write(file, data))

    async def read_file(self, file, text=True):
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        if (await self._file(file, lambda: self.sandbox.stat(file)))["size"] > most:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        data = await self._file(file, lambda: self.sandbox.read(file))
        return data.decode() if text else data

    async def _file(self, file, do):
        try:
            return await anyio.to_thread.run_sync(do)
        except Problem as problem:
            raise await anyio.to_thread.run_sync(lambda: self.sandbox.file_error(file, problem)) from problem
