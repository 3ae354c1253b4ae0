# A whole session of E2B's client for Python, unchanged. The environment names the server.
import asyncio
import http.client
import os
import time
import urllib.parse
import urllib.request

from e2b import (AsyncSandbox, AuthenticationException, CommandExitException, FileNotFoundException, FileType, Sandbox,
                 SandboxQuery, SandboxState, TimeoutException)
from e2b.exceptions import SandboxException
from e2b.sandbox.commands.command_handle import PtySize


def step(name):
    print("step", name, flush=True)


def refused(kind, do):
    try:
        do()
    except kind as e:
        return e
    raise AssertionError("no %s" % kind.__name__)


def until(holds):
    end = time.time() + 20
    while not holds():
        assert time.time() < end
        time.sleep(0.02)


step("create")
s = Sandbox.create("base", metadata={"purpose": "test run"}, envs={"GREETING": "hello"}, timeout=120)
work = s.commands.run("pwd").stdout.strip()
assert work == os.environ["WORK"], work

step("commands")
r = s.commands.run("echo $GREETING; echo problem >&2; cat add.sh", envs={"MORE": "x"})
assert r.exit_code == 0 and r.stdout == "hello\necho $(($1 - $2))\n" and r.stderr == "problem\n", r
e = refused(CommandExitException, lambda: s.commands.run("echo out; exit 3"))
assert e.exit_code == 3 and e.stdout == "out\n", e
assert s.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
seen = []
s.commands.run("for i in 1 2 3; do echo $i; sleep 0.05; done", on_stdout=seen.append)
assert "".join(seen) == "1\n2\n3\n", seen
refused(TimeoutException, lambda: s.commands.run("sleep 100", timeout=0.5))
assert len(s.commands.run("seq 300000").stdout) == 1988895

step("background, input, signals")
h = s.commands.run("cat; echo bye", background=True, stdin=True)
h.send_stdin("typed\n")
assert h.pid in [p.pid for p in s.commands.list()]
h.close_stdin()
assert h.wait().stdout == "typed\nbye\n"
h = s.commands.run("wc -c", background=True, stdin=True)
s.commands.stream_input(h.pid, (b"x" * 10000 for _ in range(30)))
s.commands.close_stdin(h.pid)
assert h.wait().stdout.strip() == "300000"
h = s.commands.run("read x; echo got $x", background=True, stdin=True)
h.disconnect()
again = s.commands.connect(h.pid)
s.commands.send_stdin(h.pid, "it\n")
assert again.wait().stdout == "got it\n"
h = s.commands.run("sleep 1000", background=True)
assert h.kill() and not s.commands.kill(12345)
refused(CommandExitException, h.wait)

step("terminal")
out = b""
p = s.pty.create(PtySize(rows=24, cols=80))
s.pty.resize(p.pid, PtySize(rows=31, cols=97))
s.pty.send_stdin(p.pid, b"stty size; exit\n")


def collect(data):
    global out
    out += data


assert p.wait(on_pty=collect).exit_code == 0 and b"31 97" in out, out

step("files")
assert s.files.write("notes/one.txt", "one").path == work + "/notes/one.txt"
assert s.files.read("notes/one.txt") == "one"
assert s.files.write("data.bin", bytes(range(256)) * 4000).name == "data.bin"
assert s.files.read("data.bin", format="bytes") == bytes(range(256)) * 4000
assert b"".join(s.files.read("data.bin", format="stream")) == bytes(range(256)) * 4000
with open(os.environ["WORK"] + "/add.sh", "rb") as f:
    s.files.write("copy.sh", f)
assert s.files.read("copy.sh") == "echo $(($1 - $2))\n"
assert [w.name for w in s.files.write_files([{"path": "notes/2", "data": "2"}, {"path": "notes/3", "data": b"3"}])] == ["2", "3"]
assert [(e.name, e.type) for e in s.files.list("notes")] == [("2", FileType.FILE), ("3", FileType.FILE), ("one.txt", FileType.FILE)]
assert s.files.make_dir("deep/er") and not s.files.make_dir("deep/er")
assert [e.path for e in s.files.list("deep", depth=2)] == [work + "/deep/er"]
i = s.files.get_info("notes/one.txt")
assert (i.size, i.mode, i.permissions, i.type) == (3, 0o644, "-rw-r--r--", FileType.FILE), i
s.commands.run("ln -s notes/one.txt link")
assert s.files.get_info("link").symlink_target == "notes/one.txt" and s.files.read("link") == "one"
assert s.files.rename("notes/one.txt", "notes/moved.txt").path == work + "/notes/moved.txt"
assert s.files.exists("notes/moved.txt") and not s.files.exists("notes/one.txt")
s.files.remove("notes")
assert not s.files.exists("notes")
refused(FileNotFoundException, lambda: s.files.read("nope"))
refused(FileNotFoundException, lambda: s.files.list("nope"))
refused(SandboxException, lambda: s.files.list("add.sh"))
assert urllib.request.urlopen(s.download_url("add.sh", use_signature_expiration=60)).read() == b"echo $(($1 - $2))\n"
assert not os.path.exists(os.environ["WORK"] + "/data.bin")

s.files.write("tagged", "x", metadata={"Owner": "me"})
assert s.files.get_info("tagged").metadata == {"owner": "me"} and s.files.get_info("add.sh").metadata is None
s.files.write("packed", "x" * 100000, gzip=True)
assert s.files.read("packed", gzip=True) == "x" * 100000

step("watch")
w = s.files.watch_dir(".", include_entry=True)
s.files.write("entry", "12345")
until(lambda: any(e.name == "entry" and e.entry and e.entry.size == 5 for e in w.get_new_events()))
w.stop()
w = s.files.watch_dir(".", recursive=True)
s.files.write("seen", "x")
s.commands.run("mkdir -p w/x; echo y > w/x/z; mv seen gone; rm gone")
events = []


def arrived():
    events.extend((e.type.value, e.name) for e in w.get_new_events())
    return ("remove", "gone") in events


until(arrived)
for e in [("create", "seen"), ("create", "w/x/z"), ("rename", "seen"), ("create", "gone")]:
    assert e in events, (e, events)
w.stop()

step("time-out, information, metrics")
s.set_timeout(300)
i = s.get_info()
assert i.sandbox_id == s.sandbox_id and i.metadata == {"purpose": "test run"} and i.state == SandboxState.RUNNING and i.template_id == "base"
assert 290 < (i.end_at - i.end_at.now(i.end_at.tzinfo)).total_seconds() <= 300
m = s.get_metrics()
assert len(m) == 1 and m[0].cpu_count > 0 and m[0].mem_total > 0
assert s.is_running()

step("ports")
h = s.commands.run("exec python3 -m http.server 8123 --bind 127.0.0.1", background=True)
host, server = s.get_host(8123), urllib.parse.urlsplit(os.environ["E2B_API_URL"]).netloc
assert host == "8123-%s.localhost:%s" % (s.sandbox_id, server.split(":")[1]), host


def serves():
    c = http.client.HTTPConnection(server)  # this machine may not resolve names below localhost
    c.request("GET", "/add.sh", headers={"Host": host})
    reply = c.getresponse()
    return reply.status == 200 and reply.read() == b"echo $(($1 - $2))\n"


until(serves)
h.kill()

step("fork")
a, b = s.fork(count=2)
a.files.write("only-a", "a")
assert a.files.exists("copy.sh") and not b.files.exists("only-a") and not s.files.exists("only-a")
assert a.kill() and b.kill()

step("snapshot")
shot = s.create_snapshot(name="shot")
s.files.remove("copy.sh")
c = Sandbox.create(shot.snapshot_id)
assert c.files.exists("copy.sh") and not s.files.exists("copy.sh")
assert [x.snapshot_id for x in Sandbox.list_snapshots().next_items()] == [shot.snapshot_id]
assert c.kill() and Sandbox.delete_snapshot(shot.snapshot_id) and not Sandbox.delete_snapshot(shot.snapshot_id)

step("pause and resume")
h = s.commands.run("sleep 0.5; echo woke > woke", background=True)
assert s.pause() and not s.pause() and not s.is_running()
assert s.get_info().state == SandboxState.PAUSED
assert [x.sandbox_id for x in Sandbox.list(query=SandboxQuery(state=[SandboxState.PAUSED])).next_items()] == [s.sandbox_id]
s = Sandbox.connect(s.sandbox_id, timeout=120)
until(lambda: s.files.exists("woke"))

step("lists")
more = [Sandbox.create(metadata={"batch": "a&b"}) for _ in range(3)]
pages = Sandbox.list(query=SandboxQuery(metadata={"batch": "a&b"}), limit=2)
ids = [x.sandbox_id for x in pages.next_items()]
assert pages.has_next and len(ids) == 2
ids += [x.sandbox_id for x in pages.next_items()]
assert not pages.has_next and sorted(ids) == sorted(x.sandbox_id for x in more)
for x in more:
    assert Sandbox.kill(x.sandbox_id)

step("refusals")
refused(SandboxException, lambda: Sandbox.create("no-such-template"))
refused(SandboxException, lambda: Sandbox.connect("no-such-sandbox"))
os.environ["E2B_API_KEY"], key = "wrong", os.environ["E2B_API_KEY"]
refused(AuthenticationException, Sandbox.create)
os.environ["E2B_API_KEY"] = key


async def session():
    step("async")
    async with await AsyncSandbox.create() as s:
        events = []
        w = await s.files.watch_dir(".", on_event=lambda e: events.append((e.type.value, e.name)))
        h = await s.commands.run("cat > typed", background=True, stdin=True)
        await s.commands.send_stdin(h.pid, "x")
        await s.commands.close_stdin(h.pid)
        assert (await h.wait()).exit_code == 0
        assert await s.files.read("typed") == "x"
        for _ in range(1000):
            if ("write", "typed") in events:
                break
            await asyncio.sleep(0.01)
        assert ("create", "typed") in events and ("write", "typed") in events, events
        await w.stop()
        rs = await asyncio.gather(*[s.commands.run("echo %d" % n) for n in range(20)])
        assert [r.stdout for r in rs] == ["%d\n" % n for n in range(20)]


asyncio.run(session())

step("kill")
print("id", s.sandbox_id)
if os.environ.get("LEAVE"):
    s.files.write("add.sh", "echo $(($1 + $2))\n")
else:
    assert s.kill() and not s.kill() and not s.is_running()
    refused(SandboxException, lambda: s.commands.run("true"))
print("done")
