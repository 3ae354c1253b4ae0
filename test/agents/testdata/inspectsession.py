# An evaluation by inspect_ai, whose agent works in sandboxes of snapfs: a scripted model repairs the script.
import asyncio
import os
import tempfile

import inspect_snapfs  # registers the provider
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, accuracy, scorer
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import sandbox
from inspect_ai.util._sandbox import self_check
from snapfs_api import Problem


@scorer(metrics=[accuracy()])
def tests():
    async def score(state, target):
        r = await sandbox().exec(["sh", "test.sh"])
        note = await sandbox().read_file("notes/made.txt")
        return Score(value=r.success and note == "made\n", answer=r.stderr)

    return score


steps = [
    ModelOutput.for_tool_call("mockllm", "bash", {"command": "sed -i 's/-/+/' add.sh; cat add.sh hint.txt; exit 3"}),
    ModelOutput.for_tool_call("mockllm", "bash", {"command": "mkdir notes; echo made > notes/made.txt"}),
    ModelOutput.from_content("mockllm", "repaired"),
]
for step in steps:
    step.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # or it fetches a tokenizer
task = Task(
    dataset=[Sample(input="Repair add.sh.", files={"hint.txt": "a hint"})],
    solver=[use_tools(bash(timeout=30)), generate()],
    scorer=tests(),
    sandbox="snapfs",
)
with tempfile.TemporaryDirectory() as logs:
    log = eval(task, model=get_model("mockllm/model", custom_outputs=steps), log_dir=logs, display="none")[0]
    said = [m.text for m in log.samples[0].messages if m.role == "tool"]  # read from the log
assert log.status == "success", (log.error.message, said)
assert log.results.scores[0].metrics["accuracy"].value == 1, (log.results, said)
assert "echo $(($1 + $2))" in said[0] and "a hint" in said[0], said


# What a sandbox of snapfs has not: other users, and files that its user, who is root there, may not read.
# A request has at most 1 MiB. The checks with timeouts wait for fixed times.
without = ("as_user", "not_allowed", "without_permissions", "timeout", "input_large", "large_command")


async def checks():
    failed = []
    environments = await inspect_snapfs.SnapfsSandbox.sample_init("t", None, {})
    try:
        for name in self_check.__all__:
            if any(word in name for word in without):
                continue
            try:
                await getattr(self_check, name)(environments["default"])
            except Exception as problem:
                failed.append((name, repr(problem)))
        try:  # it is missing, whatever its name says
            await environments["default"].exec(["/missing/permission denied"])
        except Exception as problem:
            if type(problem) is not Problem:
                failed.append(("a missing program", repr(problem)))
        else:
            failed.append(("a missing program", "no error"))
    finally:
        await inspect_snapfs.SnapfsSandbox.sample_cleanup("t", None, environments, False)
    return failed


failed = asyncio.run(checks())
assert not failed, failed
print("done")
