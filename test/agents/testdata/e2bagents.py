# A session of the sandbox client of OpenAI's Agents SDK, unchanged, through E2B's client.
import asyncio
import io
import os
from pathlib import Path

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox.manifest import Manifest


async def session(persistence):
    print("step", persistence, flush=True)
    client = E2BSandboxClient()
    options = E2BSandboxClientOptions("e2b", timeout=120, workspace_persistence=persistence, exposed_ports=(8123,))
    s = await client.create(manifest=Manifest(root=os.environ["WORK"]), options=options)
    await s.start()
    r = await s.exec("cat add.sh; echo problem >&2; exit 3")
    assert (r.exit_code, r.stdout, r.stderr) == (3, b"echo $(($1 - $2))\n", b"problem\n"), vars(r)
    await s.write(Path("x/y.txt"), io.BytesIO(b"data"))
    assert (await s.read(Path("x/y.txt"))).read() == b"data" and await s.running()
    saved = (await s.persist_workspace()).read()
    await s.exec("rm x/y.txt")
    await s.hydrate_workspace(io.BytesIO(saved))
    assert (await s.read(Path("x/y.txt"))).read() == b"data"
    at = await s.resolve_exposed_port(8123)
    assert at.host.startswith("8123-") and at.host.endswith(".localhost"), at
    await s.stop()
    s = await client.resume(s.state)
    await s.start()
    assert (await s.exec("cat x/y.txt")).stdout == b"data"
    await s.shutdown()
    await client.delete(s)


asyncio.run(session("tar"))
asyncio.run(session("snapshot"))
print("done")
