import {el, fill, id, say, when, latest} from './dom.js';
import {follow, login, logout, session, whenEnded, past, get} from './api.js';
import * as home from './sandboxes.js';
import * as jobs from './jobs.js';
import * as races from './races.js';
import {endAll} from './terminal.js';

// A view has show(main, argument, session), which fills main, and event(ev), and may have key(letter), which reports
// whether it used it.
const events = {
  seen: [],
  async show(main) {
    this.list = el('ol', {class: 'log', id: 'log'});
    fill(main, el('h2', {}, 'Events'), this.list);
    this.seen = [];
    for (const ev of await past('', 200)) this.event(ev);
  },
  event(ev) {
    if (this.seen.includes(ev.id)) return;
    this.seen = [...this.seen, ev.id].slice(-400);
    this.list.prepend(el('li', {}, el('span', {class: 'dim'}, when(ev.time)), ' ', ev.type.replace('snapfs.', ''), ' ', el('b', {}, ev.subject ?? ''), ' ', described(ev.data)));
    while (this.list.children.length > 200) this.list.lastChild.remove();
  },
};

// described returns the data of an event as a text.
const described = data => Object.entries(data ?? {}).filter(([, v]) => v !== null && v !== '')
  .map(([k, v]) => `${k.replaceAll('_', ' ')} ${Array.isArray(v) ? v.join(' ') : v}`).join(', ');

let me = null, view = null, stop = null, missed = false;

function route() {
  if (!me) return;
  const [, name, argument] = location.hash.split('/');
  view = {jobs, events, races}[name] ?? home;
  for (const a of id('views').querySelectorAll('a')) {
    if ((a.hash.split('/')[1] || 'sandbox') === (name || 'sandbox')) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  show(view, argument ? decodeURIComponent(argument) : '');
}

async function show(v, argument) {
  try {
    await v.show(id('main'), argument, me);
  } catch (e) {
    say(e.message);
  }
}

const waiting = latest(() => get('/v1/jobs?state=waiting'), ({jobs: list}) => {
  id('waiting').textContent = list.length ? `(${list.length} waiting)` : '';
});

// live follows the events while the session lasts.
function live() {
  stop?.abort();
  stop = new AbortController();
  follow(ev => {
    view?.event?.(ev);
    if (ev.type === 'snapfs.job.changed') waiting().catch(e => say(e.message));
  }, connected => {
    id('live').textContent = connected ? 'live' : 'not connected';
    if (connected && missed) route();
    missed = !connected;
  }, stop.signal);
}

function begin(session) {
  me = session;
  id('views').hidden = id('who').hidden = false;
  id('name').textContent = `${me.name}: ${me.scopes.join(', ')}`;
  say('');
  live();
  route();
  waiting().catch(e => say(e.message));
}

function askLogin(text) {
  me = view = null;
  stop?.abort();
  endAll();
  races.end();
  id('views').hidden = id('who').hidden = true;
  const input = el('input', {type: 'password', id: 'token', autocomplete: 'off', required: true, 'aria-describedby': 'how'});
  fill(id('main'), el('section', {class: 'card login'}, el('h2', {}, 'Log in'),
    el('form', {
      onsubmit: async ev => {
        ev.preventDefault();
        try { begin(await login({token: input.value})); } catch (e) { say(e.message); input.focus(); }
      },
    }, el('label', {for: 'token'}, 'Token'), input, el('button', {class: 'main'}, 'Log in')),
    el('p', {class: 'dim', id: 'how'}, 'Make one with: snapfs token new --scope read,run,promote --expires 12h me')));
  if (text) say(text);
  input.focus();
}

whenEnded(() => { if (me) askLogin('The session has ended.'); });

id('logout').addEventListener('click', async () => {
  try { await logout(); askLogin('Logged out.'); } catch (e) { say(e.message); }
});
id('keys').addEventListener('click', () => id('help').showModal());
id('close').addEventListener('click', () => id('help').close());
id('skip').addEventListener('click', ev => { ev.preventDefault(); id('main').focus(); });

addEventListener('keydown', ev => {
  if (ev.target.closest?.('.xterm')) return; // all keys are the terminal's
  const typing = ev.target.closest?.('input:not([type=checkbox]), textarea, select');
  if (!me || ev.ctrlKey || ev.altKey || ev.metaKey || id('help').open) return;
  if (ev.key === 'Escape') {
    if (typing) typing.blur(); else if (view === home) home.key('Escape');
    return;
  }
  if (typing || !id('letters').checked) return;
  const go = {1: '#/', 2: '#/jobs', 3: '#/events', 4: '#/races'}[ev.key];
  if (ev.key === '?') id('help').showModal();
  else if (go) location.hash = go;
  else if (!view?.key?.(ev.key)) return;
  ev.preventDefault();
});
addEventListener('hashchange', route);

const code = new URLSearchParams(location.hash.slice(1)).get('login');
if (code) history.replaceState(null, '', '/');
try {
  const me = code ? await login({code}) : await session();
  if (me) begin(me); else askLogin('');
} catch (e) {
  askLogin(code ? e.message : '');
}
