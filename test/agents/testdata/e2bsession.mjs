// A whole session of E2B's client for JavaScript, unchanged. The environment names the server.
import assert from 'node:assert/strict'
import http from 'node:http'
import { AuthenticationError, CommandExitError, FileNotFoundError, FileType, Sandbox, TimeoutError } from 'e2b'

const step = (name) => console.log('step', name)
const until = async (holds) => {
  const end = Date.now() + 20000
  while (!(await holds())) {
    assert.ok(Date.now() < end)
    await new Promise((r) => setTimeout(r, 20))
  }
}

step('create')
let s = await Sandbox.create('base', { metadata: { purpose: 'test run' }, envs: { GREETING: 'hello' }, timeoutMs: 120000 })
const work = (await s.commands.run('pwd')).stdout.trim()
assert.equal(work, process.env.WORK)

step('commands')
assert.deepEqual({ ...(await s.commands.run('echo $GREETING; echo problem >&2')) }, { exitCode: 0, error: undefined, stdout: 'hello\n', stderr: 'problem\n' })
await assert.rejects(s.commands.run('echo out; exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3 && e.stdout === 'out\n')
let seen = ''
await s.commands.run('for i in 1 2 3; do echo $i; sleep 0.05; done', { onStdout: (d) => { seen += d } })
assert.equal(seen, '1\n2\n3\n')
await assert.rejects(s.commands.run('sleep 100', { timeoutMs: 500 }), TimeoutError)
assert.equal((await s.commands.run('seq 300000')).stdout.length, 1988895)

step('background, input, signals')
let h = await s.commands.run('cat; echo bye', { background: true, stdin: true })
await s.commands.sendStdin(h.pid, 'typed\n')
assert.ok((await s.commands.list()).some((p) => p.pid === h.pid))
await s.commands.closeStdin(h.pid)
assert.equal((await h.wait()).stdout, 'typed\nbye\n')
h = await s.commands.run('read x; echo got $x', { background: true, stdin: true })
await h.disconnect()
const again = await s.commands.connect(h.pid)
await s.commands.sendStdin(h.pid, 'it\n')
assert.equal((await again.wait()).stdout, 'got it\n')
h = await s.commands.run('sleep 1000', { background: true })
assert.ok(await h.kill())
assert.equal(await s.commands.kill(12345), false)
await assert.rejects(h.wait(), CommandExitError)

step('terminal')
let out = ''
const p = await s.pty.create({ cols: 80, rows: 24, onData: (d) => { out += new TextDecoder().decode(d) } })
await s.pty.resize(p.pid, { cols: 97, rows: 31 })
await s.pty.sendInput(p.pid, new TextEncoder().encode('stty size; exit\n'))
assert.equal((await p.wait()).exitCode, 0)
assert.ok(out.includes('31 97'), out)

step('files')
assert.equal((await s.files.write('notes/one.txt', 'one')).path, work + '/notes/one.txt')
assert.equal(await s.files.read('notes/one.txt'), 'one')
await s.files.write([{ path: 'notes/2', data: '2' }, { path: 'notes/3', data: new Uint8Array([51]).buffer }])
assert.deepEqual((await s.files.list('notes')).map((e) => [e.name, e.type]), [['2', FileType.FILE], ['3', FileType.FILE], ['one.txt', FileType.FILE]])
assert.deepEqual([await s.files.makeDir('deep/er'), await s.files.makeDir('deep/er')], [true, false])
assert.equal((await s.files.getInfo('notes/one.txt')).size, 3)
assert.equal((await s.files.rename('notes/one.txt', 'notes/moved.txt')).path, work + '/notes/moved.txt')
assert.deepEqual([await s.files.exists('notes/moved.txt'), await s.files.exists('notes/one.txt')], [true, false])
await s.files.remove('notes')
assert.equal(await s.files.exists('notes'), false)
await assert.rejects(s.files.read('nope'), FileNotFoundError)
const bytes = new Uint8Array(1000000).map((_, i) => i)
await s.files.write('data.bin', bytes.buffer)
assert.deepEqual(await s.files.read('data.bin', { format: 'bytes' }), bytes)
const form = new FormData()
form.append('file', new Blob(['up']), 'up.txt')
assert.equal((await fetch(await s.uploadUrl('up.txt', { useSignatureExpiration: 60 }), { method: 'POST', body: form })).status, 200)
assert.equal(await (await fetch(await s.downloadUrl('up.txt'))).text(), 'up')

await s.files.write('tagged', 'x', { metadata: { owner: 'me' } })
assert.deepEqual((await s.files.getInfo('tagged')).metadata, { owner: 'me' })
await s.files.write('packed', 'x'.repeat(100000), { gzip: true })
assert.equal((await s.files.read('packed', { gzip: true })).length, 100000)

step('watch')
const events = []
const w = await s.files.watchDir('.', (e) => events.push(e.type + ' ' + e.name), { recursive: true })
await s.files.write('seen', 'x')
await s.commands.run('mkdir -p w/x; echo y > w/x/z; mv seen gone; rm gone')
await until(() => events.includes('remove gone'))
for (const e of ['create seen', 'create w/x/z', 'rename seen', 'create gone']) assert.ok(events.includes(e), e + ': ' + events)
await w.stop()

step('time-out, information, metrics')
await s.setTimeout(300000)
const i = await s.getInfo()
assert.deepEqual([i.sandboxId, i.state, i.metadata], [s.sandboxId, 'running', { purpose: 'test run' }])
assert.equal((await s.getMetrics()).length, 1)
assert.ok(await s.isRunning())

step('ports')
h = await s.commands.run('exec python3 -m http.server 8123 --bind 127.0.0.1', { background: true })
const host = s.getHost(8123), server = new URL(process.env.E2B_API_URL)
assert.equal(host, '8123-' + s.sandboxId + '.localhost:' + server.port)
const get = () => new Promise((ok, fail) => { // this machine may not resolve names below localhost
  http.get({ host: server.hostname, port: server.port, path: '/up.txt', headers: { Host: host } }, (r) => {
    let text = ''
    r.on('data', (d) => { text += d })
    r.on('end', () => ok(r.statusCode === 200 && text === 'up'))
  }).on('error', fail)
})
await until(get)
await h.kill()

step('fork')
const [a, b] = await s.fork({ count: 2 })
await a.files.write('only-a', 'a')
assert.deepEqual([await a.files.exists('up.txt'), await b.files.exists('only-a'), await s.files.exists('only-a')], [true, false, false])
assert.ok((await a.kill()) && (await b.kill()))

step('snapshot')
const shot = await s.createSnapshot()
await s.files.remove('up.txt')
const c = await Sandbox.create(shot.snapshotId)
assert.deepEqual([await c.files.exists('up.txt'), await s.files.exists('up.txt')], [true, false])
assert.ok((await c.kill()) && (await Sandbox.deleteSnapshot(shot.snapshotId)))

step('pause and resume')
await s.commands.run('sleep 0.5; echo woke > woke', { background: true })
assert.deepEqual([await s.pause(), await s.pause(), await s.isRunning()], [true, false, false])
s = await Sandbox.connect(s.sandboxId, { timeoutMs: 120000 })
await until(() => s.files.exists('woke'))

step('lists')
const more = []
for (let n = 0; n < 3; n++) more.push(await Sandbox.create({ metadata: { batch: 'a&b' } }))
const pages = Sandbox.list({ limit: 2, query: { metadata: { batch: 'a&b' } } })
const ids = (await pages.nextItems()).map((x) => x.sandboxId)
assert.ok(pages.hasNext)
ids.push(...(await pages.nextItems()).map((x) => x.sandboxId))
assert.deepEqual(ids.sort(), more.map((x) => x.sandboxId).sort())
for (const x of more) assert.ok(await x.kill())

step('refusals')
await assert.rejects(Sandbox.create('no-such-template'))
await assert.rejects(Sandbox.create({ apiKey: 'wrong' }), AuthenticationError)

step('kill')
assert.ok(await s.kill())
assert.equal(await s.isRunning(), false)
await assert.rejects(s.commands.run('true'))
console.log('done')
