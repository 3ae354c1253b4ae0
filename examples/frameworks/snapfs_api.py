"""A sandbox of snapfs for Python programs: the HTTP API of `snapfs serve` on its unix socket."""

import base64
import http.client
import json
import os
import socket
from urllib.parse import quote, urlencode

SOCKET = os.environ.get("SNAPFS_SOCKET", "/var/lib/snapfs/serve.sock")


class Problem(Exception):
    """A refusal of the server, with its HTTP status and its problem document."""

    def __init__(self, status, document):
        super().__init__(document.get("detail") or document.get("title") or f"status {status}")
        self.status, self.document = status, document


class _Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(SOCKET)


def request(method, path, body=None, query=None):
    """Send a request and return the body of the response. body is bytes, or a value to send as JSON."""
    headers = {}
    if isinstance(body, bytes):
        headers["Content-Type"] = "application/octet-stream"
    elif body is not None:
        headers["Content-Type"], body = "application/json", json.dumps(body)
    connection = _Connection("snapfs")
    try:
        connection.request(method, "/v1" + path + ("?" + urlencode(query) if query else ""), body, headers)
        response = connection.getresponse()
        data = response.read()
    finally:
        connection.close()
    if response.status >= 400:
        problem = response.getheader("Content-Type") == "application/problem+json"
        raise Problem(response.status, json.loads(data) if problem else {})
    return data


class Sandbox:
    """A sandbox of this machine. remove() ends it; what it changed is promoted only by `snapfs promote NAME`."""

    def __init__(self, **options):
        """Make a sandbox. Options are the fields of NewSandbox in the API, such as workspace, network and limits."""
        made = json.loads(request("POST", "/sandboxes", options))
        self.name, self.workspace = made["name"], made["workspace"]
        self._path = "/sandboxes/" + quote(self.name)

    def exec(self, args, stdin=b"", dir=".", env=None, timeout=None):
        """Run a command and return its result: exit, timed_out, and the bytes stdout and stderr."""
        body = {"args": args, "dir": dir, "env": [f"{k}={v}" for k, v in (env or {}).items()]}
        if stdin:
            body["stdin_base64"] = base64.b64encode(stdin).decode()
        if timeout:
            body["timeout"] = f"{timeout}s"
        result = json.loads(request("POST", self._path + "/exec", body))
        for stream in ("stdout", "stderr"):
            output = result[stream]
            result[stream + "_left_out"] = output["left_out"]
            result[stream] = base64.b64decode(output["base64"]) if "base64" in output else output.get("text", "").encode()
        return result

    def read(self, path):
        """Return the bytes of a file."""
        return request("GET", self._path + "/files/content", query={"path": path})

    def write(self, path, data):
        """Write a file, and make missing directories."""
        request("PUT", self._path + "/files/content", data, {"path": path, "parents": "true"})

    def stat(self, path):
        """Describe a file: its type, size and mode."""
        return json.loads(request("GET", self._path + "/files/stat", query={"path": path}))

    def remove(self):
        """End the processes of the sandbox, and remove it with its changes."""
        request("DELETE", self._path)

    def file_error(self, path, problem):
        """Return the exception of Python for a problem with a file."""
        if problem.status == 404:
            return FileNotFoundError(path)
        if problem.status == 403:
            return PermissionError(path)
        try:
            if self.stat(path)["type"] == "directory":
                return IsADirectoryError(f"{path} is a directory")
        except Problem:
            pass  # the first one says more
        return problem
