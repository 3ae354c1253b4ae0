// The list of sandboxes, and one of them in detail.
import {el, fill, say, count, path, when, size, output, latest} from './dom.js';
import {get, of, sandboxes, send} from './api.js';
import {Plan} from './plan.js';
import {Commands} from './commands.js';
import {usage} from './usage.js';
import {terminal} from './terminal.js';

let me, list, filter, detail, all = [], name = '', sections = {}, timer, due = false, shownFor = '';

export async function show(main, argument, session) {
  me = session;
  name = argument;
  if (!list?.isConnected) {
    list = el('ul', {class: 'list', id: 'list'});
    filter = el('input', {type: 'search', 'aria-label': 'Filter sandboxes', placeholder: 'Filter', oninput: draw});
    detail = el('div', {id: 'detail'});
    shownFor = '';
    fill(main, el('div', {class: 'both'}, el('nav', {'aria-label': 'Sandboxes'}, el('form', {role: 'search', onsubmit: e => e.preventDefault()}, filter), list), detail));
  }
  await refresh();
}

const refresh = latest(sandboxes, async list => {
  all = list;
  draw();
  await drawDetail();
});

const state = s => s.paused ? 'paused' : s.running ? 'running' : 'idle';

// draw updates the list; links stay the same elements, so that one keeps the focus.
function draw() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const old = new Map([...list.children].map(li => [li.dataset.name, li]));
  const items = all.filter(s => words.every(w => `${s.name} ${s.workspace} ${state(s)}`.toLowerCase().includes(w))).map(s => {
    const li = old.get(s.name) ?? el('li', {}, el('a', {href: '#/sandbox/' + encodeURIComponent(s.name)}));
    li.dataset.name = s.name;
    const a = li.firstChild;
    if (s.name === name) a.setAttribute('aria-current', 'true'); else a.removeAttribute('aria-current');
    fill(a, el('span', {class: state(s)}, s.name), el('span', {class: 'dim'}, `${state(s)}, `, path(s.workspace)));
    return li;
  });
  const focused = document.activeElement;
  list.replaceChildren(...(items.length ? items : [el('li', {class: 'dim'}, all.length ? 'None fits.' : 'There is no sandbox: snapfs new')]));
  if (focused?.isConnected && focused !== document.activeElement) focused.focus();
}

async function drawDetail() {
  if (!name) {
    fill(detail, el('p', {class: 'dim'}, 'Choose a sandbox.'));
    shownFor = '';
    return;
  }
  const s = all.find(s => s.name === name);
  if (!s) {
    fill(detail, el('p', {class: 'dim'}, 'There is no sandbox ', name, '.'));
    shownFor = '';
    return;
  }
  if (shownFor !== s.id) {
    shownFor = s.id;
    make(s);
  }
  facts(s);
}

function facts(s) {
  const row = (what, ...value) => value.some(Boolean) ? [el('dt', {}, what), el('dd', {}, ...value)] : [];
  fill(sections.facts,
    row('State', el('span', {class: state(s)}, state(s))), row('Workspace', path(s.workspace)), row('Made', when(s.created)), row('From', s.origin),
    row('Base', `${s.base}, ${s.backends.join(', ')}`), row('Network', s.network),
    row('Limits', Object.entries(s.limits).map(([k, v]) => `${k} ${v}`).join(', ')),
    row('Snapshots', s.snapshots.map(m => m.name).join(', ')), row('Size', s.size !== undefined && size(s.size)),
    row('Behind', s.behind !== undefined && count(s.behind, 'path')), row('Removed at', s.removed_at && when(s.removed_at)));
}

// section returns a part of the detail that loads when it is opened. again loads it anew; by itself, so not beneath a
// person who is at it.
function section(letter, title, load, open) {
  const content = el('div');
  let calls = 0;
  const again = async byItself => {
    const fresh = 'prt'.includes(letter) ? content : el('div'), mine = ++calls;
    try { await load(fresh); } catch (e) { fill(fresh, el('p', {class: 'warn'}, e.message)); }
    if (fresh !== content && mine === calls && !(byItself && busy(letter))) content.replaceChildren(...fresh.childNodes);
  };
  const e = el('details', {class: 'card', open, ontoggle: () => { if (e.open) again(false); }}, el('summary', {}, title), content);
  sections[letter] = {e, again};
  return e;
}

function make(s) {
  sections = {facts: el('dl', {class: 'facts'})};
  const plan = new Plan(s, me), commands = new Commands(s, me);
  fill(detail, el('section', {class: 'card', 'aria-labelledby': 'title'}, el('h2', {id: 'title'}, s.name), sections.facts),
    section('c', 'Changes', changes(s), true), section('p', 'Promotion', c => plan.load(c)), section('d', 'Drift', drift(s)),
    section('r', 'Commands', c => commands.load(c)), section('t', 'Terminal', c => terminal(s, me).load(c)),
    section('u', 'Usage', c => usage(s, c)));
  sections.p.plan = plan;
}

const changes = s => async content => {
  const d = await get(of(s.name) + '/diff?limit=1000');
  const row = c => {
    const pre = el('pre', {tabIndex: 0, 'aria-label': 'patch', hidden: true});
    const lines = el('button', {
      type: 'button', 'aria-expanded': 'false', 'aria-label': `lines of ${c.path}`,
      onclick: async () => {
        pre.hidden = !pre.hidden;
        lines.setAttribute('aria-expanded', String(!pre.hidden));
        if (pre.hidden) return;
        try {
          const r = await send('GET', `${of(s.name)}/diff?path=${encodeURIComponent(literal(s.workspace, c.path))}`, {accept: 'text/x-diff'});
          pre.textContent = output((await r.text()).slice(0, 200000)) || 'no lines';
        } catch (e) {
          pre.textContent = e.message;
        }
      },
    }, 'Lines');
    return el('tr', {}, el('td', {class: `w1 ${c.kind}`}, c.kind), el('td', {}, path(c.path), c.what && el('span', {class: 'dim'}, ' ' + c.what.join(', ')), pre), el('td', {class: 'w1'}, lines));
  };
  fill(content, el('p', {class: 'dim'}, d.changes.length ? count(d.changes.length, 'path') + (d.next ? ', and more: snapfs diff ' + s.name : '') : 'Nothing has changed.'),
    d.changes.length > 0 && el('table', {}, el('thead', {}, el('tr', {}, el('th', {scope: 'col', class: 'w1'}, 'Change'), el('th', {scope: 'col'}, 'Path'), el('th', {scope: 'col', class: 'w1'}, 'Patch'))),
      el('tbody', {}, d.changes.map(row))));
};

// literal returns a path as a pattern that matches this path and no other, beside what is below it.
export function literal(workspace, p) {
  const root = workspace.replace(/\/$/, '') + '/';
  const inside = p.startsWith(root) ? p.slice(root.length) : p;
  if (p.startsWith('/') && !p.startsWith(root) || !/[*?[]/.test(inside)) return p;
  return root + inside.replace(/[*?[\\]/g, c => c === '\\' ? '\\\\' : `[${c}]`);
}

const drift = s => async content => {
  const d = await get(of(s.name) + '/drift');
  fill(content, el('p', {class: 'dim'}, `Since ${when(d.since)} ${count(d.count, 'real file')} changed, of these the sandbox has changed ${d.both} too.` + (d.exact ? '' : ' Found by change times.')),
    d.paths.length > 0 && el('table', {}, el('thead', {}, el('tr', {}, el('th', {scope: 'col', class: 'w1'}, 'Change'), el('th', {scope: 'col'}, 'Path'), el('th', {scope: 'col'}, 'Note'))),
      el('tbody', {}, d.paths.slice(0, 1000).map(p => el('tr', {}, el('td', {}, p.kind), el('td', {}, path(p.path)),
        el('td', {class: p.both && 'warn'}, [p.both && 'the sandbox changed it too', p.read && 'the sandbox read the new one'].filter(Boolean).join(', ')))))));
};

export function event(ev) {
  if (!ev.subject && ev.type !== 'snapfs.events.lost') return;
  if (ev.subject === name) {
    sections.p?.plan?.stale();
    due = true;
  }
  clearTimeout(timer);
  timer = setTimeout(async () => {
    const changed = due;
    due = false;
    try {
      await refresh();
      if (changed) for (const letter of 'cdru') if (sections[letter]?.e.open && !busy(letter)) await sections[letter].again(true);
    } catch (e) {
      say(e.message);
    }
  }, 150);
}

// busy reports whether a person is at a section.
const busy = letter => letter === 'r' || sections[letter].e.querySelector('[aria-expanded=true]') || sections[letter].e.lastChild.contains(document.activeElement);

export function key(letter) {
  if (letter === '/') filter.focus();
  else if (letter === 'Escape') location.hash = '#/';
  else if ((letter === 'j' || letter === 'k') && sections.p?.e.open && sections.p.plan.move(letter === 'j' ? 1 : -1)) return true;
  else if (letter === 'j' || letter === 'k') {
    const links = [...list.querySelectorAll('a')];
    const at = links.findIndex(a => a.hasAttribute('aria-current'));
    const next = links[Math.max(0, Math.min(links.length - 1, at + (letter === 'j' ? 1 : -1)))];
    next?.focus();
    next?.click();
  } else if ((letter === 'a' || letter === 'x') && sections.p?.plan.decide(letter === 'a')) return true;
  else if ('cpdrtu'.includes(letter) && sections[letter]?.e.isConnected) {
    const e = sections[letter].e;
    e.open = !e.open || document.activeElement !== e.firstChild;
    e.firstChild.focus();
  } else return false;
  return true;
}
