// Requests to /v1. The session's cookie is encrypted; its key is stored for this origin alone and comes in a header.

const stored = 'snapfs.key';
const key = () => localStorage.getItem(stored) ?? '';

// An ApiError has the problem document of a refused request.
export class ApiError extends Error {
  constructor(status, problem) {
    const hints = problem.hints?.length ? '\nhint: ' + problem.hints.join('\nhint: ') : '';
    super((problem.detail ?? problem.title ?? `status ${status}`) + hints);
    this.status = status;
    this.problem = problem;
  }
}

let ended = () => {};
// whenEnded sets what happens once the session is no longer valid.
export const whenEnded = f => { ended = f; };

// send sends a request and returns the response, or throws an ApiError.
export async function send(method, url, {body, accept = 'application/json', headers = {}, signal} = {}) {
  const all = {Accept: accept, 'X-Snapfs-Key': key(), ...headers};
  if (body !== undefined) all['Content-Type'] = 'application/json';
  const r = await fetch(url, {method, headers: all, body: body === undefined ? undefined : JSON.stringify(body), signal, credentials: 'same-origin', cache: 'no-store', redirect: 'error'});
  if (r.ok) return r;
  const problem = await r.json().catch(() => ({title: r.statusText}));
  if (r.status === 401 && !url.startsWith('/page/')) ended();
  throw new ApiError(r.status, problem);
}

export async function get(url, options) { return (await send('GET', url, options)).json(); }

export async function post(url, body, options) {
  const r = await send('POST', url, {...options, body});
  return r.status === 204 ? null : r.json();
}

// socket opens a WebSocket. A browser sends no header of a page's with it, so the key of the session goes as a subprotocol,
// which the server reads and passes to nobody.
export const socket = (url, protocol) => new WebSocket(location.origin.replace(/^http/, 'ws') + url, [protocol, 'snapfs.key.' + key()]);

export const of = name => '/v1/sandboxes/' + encodeURIComponent(name);

// sandboxes returns all sandboxes.
export async function sandboxes() {
  const all = [];
  for (let after = ''; ;) {
    const page = await get('/v1/sandboxes?limit=500&after=' + encodeURIComponent(after));
    all.push(...page.sandboxes);
    if (!page.next) return all;
    after = page.next;
  }
}

// text passes the parts of a streamed text to onText.
export async function text(response, onText) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    onText(value);
  }
}

// lines passes each line of a streamed text to onLine.
export async function lines(response, onLine) {
  let rest = '';
  await text(response, part => {
    const all = (rest + part).split('\n');
    rest = all.pop();
    all.forEach(onLine);
  });
}

const pause = (ms, signal) => new Promise(done => {
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, {once: true});
});

// follow passes each event to onEvent as it comes, until the signal. After a lost connection it goes on where it was;
// onState is called with whether it is connected, and, where events may be missing, again with what it missed.
export async function follow(onEvent, onState, signal) {
  let last = '';
  for (let wait = 250; !signal.aborted; wait = Math.min(2 * wait, 10000)) {
    try {
      const r = await send('GET', '/v1/events', {accept: 'text/event-stream', headers: last ? {'Last-Event-ID': last} : {}, signal});
      onState(true);
      wait = 250;
      await lines(r, line => {
        if (line.startsWith('id: ')) last = line.slice(4);
        else if (line.startsWith('data: ')) onEvent(JSON.parse(line.slice(6)));
      });
    } catch (e) {
      if (signal.aborted || e.status === 401) return;
    }
    onState(false);
    await pause(wait, signal);
  }
}

// past returns the newest stored events of a sandbox, at most so many.
export async function past(sandbox, most) {
  const all = [];
  const r = await send('GET', '/v1/events?follow=false&after=0' + (sandbox ? '&sandbox=' + encodeURIComponent(sandbox) : ''), {accept: 'application/x-ndjson'});
  await lines(r, line => {
    if (line.trim()) all.push(JSON.parse(line));
    if (all.length > 2 * most) all.splice(0, all.length - most);
  });
  return all.slice(-most);
}

// login begins a session, and returns what it may do.
export async function login(with_) {
  const session = await post('/page/login', with_);
  localStorage.setItem(stored, session.key);
  return session;
}

export async function logout() {
  await post('/page/logout');
  localStorage.removeItem(stored);
}

// session returns what the session may do, or null without one.
export async function session() {
  const r = await send('GET', '/page/session');
  return r.status === 204 ? null : r.json();
}
