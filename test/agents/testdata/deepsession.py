# An agent by deepagents that works in a sandbox of snapfs: a scripted model repairs the script.
from deepagents import create_deep_agent
from deepagents_snapfs import SnapfsBackend
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from snapfs_api import Sandbox


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self


def call(n, tool, **args):
    return AIMessage(content="", tool_calls=[{"name": tool, "args": args, "id": str(n)}])


sandbox = Sandbox()
try:
    at = sandbox.workspace
    steps = [
        call(1, "execute", command="cat add.sh; echo problem >&2; exit 3"),
        call(2, "edit_file", file_path=at + "/add.sh", old_string="$1 - $2", new_string="$1 + $2"),
        call(3, "write_file", file_path=at + "/notes/made.txt", content="made\n"),
        call(4, "read_file", file_path=at + "/notes/made.txt"),
        call(5, "grep", pattern="made", path=at),
        call(6, "execute", command="sh test.sh && echo passed"),
        AIMessage(content="repaired"),
    ]
    agent = create_deep_agent(model=Scripted(messages=iter(steps)), backend=SnapfsBackend(sandbox))
    messages = agent.invoke({"messages": [{"role": "user", "content": "Repair add.sh."}]})["messages"]
    said = [m.text for m in messages if isinstance(m, ToolMessage)]
    assert "echo $(($1 - $2))\nproblem" in said[0] and "3" in said[0], said
    assert "made" in said[3] and "made.txt" in said[4] and "passed" in said[5], said
    assert messages[-1].text == "repaired" and sandbox.read("add.sh") == b"echo $(($1 + $2))\n", messages

    backend = SnapfsBackend(sandbox)
    up = backend.upload_files([(at + "/a/b.bin", b"\xff\x00"), ("/proc/none", b"x"), (at + "/notes", b"x")])
    assert up[0].error is None and up[1].error and up[2].error == "is_directory", up
    down = backend.download_files([at + "/a/b.bin", at + "/none", at + "/notes"])
    assert [(d.content, d.error) for d in down] == [(b"\xff\x00", None), (None, "file_not_found"), (None, "is_directory")], down
    slow = backend.execute("exec sleep 600", timeout=1)
    assert slow.output == "\nended after 1 s" and slow.exit_code != 0, slow
finally:
    sandbox.remove()
print("done")
