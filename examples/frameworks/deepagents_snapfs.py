"""A sandbox of snapfs for deepagents: create_deep_agent(backend=SnapfsBackend(Sandbox()))."""

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from snapfs_api import Problem

ERRORS = {
    FileNotFoundError: "file_not_found",
    PermissionError: "permission_denied",
    IsADirectoryError: "is_directory",
}


class SnapfsBackend(BaseSandbox):
    def __init__(self, sandbox):
        self.sandbox = sandbox

    @property
    def id(self):
        return self.sandbox.name

    def execute(self, command, *, timeout=None):
        r = self.sandbox.exec(["sh", "-c", "exec 2>&1; " + command], timeout=timeout)
        output = r["stdout"].decode(errors="replace")
        if r["timed_out"]:
            output += f"\nended after {timeout} s"
        return ExecuteResponse(output=output, exit_code=r["exit"], truncated=r["stdout_left_out"] > 0)

    def upload_files(self, files):
        return [FileUploadResponse(path=p, error=self._try(p, lambda: self.sandbox.write(p, d))[1]) for p, d in files]

    def download_files(self, paths):
        answers = []
        for path in paths:
            content, error = self._try(path, lambda: self.sandbox.read(path))
            answers.append(FileDownloadResponse(path=path, content=content, error=error))
        return answers

    def _try(self, path, do):
        try:
            return do(), None
        except Problem as problem:
            error = self.sandbox.file_error(path, problem)
            return None, ERRORS.get(type(error), str(error))
