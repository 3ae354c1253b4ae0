// The jobs, with those that wait for a person first.
import {el, fill, say, button, command, path, count, when, latest} from './dom.js';
import {get, post} from './api.js';

let me, body, timer, all = false, shown = '';

export async function show(main, argument, session) {
  me = session;
  body = el('tbody');
  const ended = el('input', {type: 'checkbox', checked: all, onchange: () => { all = ended.checked; refresh(); }});
  fill(main, el('h2', {}, 'Jobs'), el('p', {}, el('label', {}, ended, ' also those that have ended')),
    el('section', {class: 'card'}, el('table', {}, el('thead', {}, el('tr', {},
      el('th', {scope: 'col', class: 'w1'}, 'Job'), el('th', {scope: 'col'}, 'Command'), el('th', {scope: 'col'}, 'State'), el('th', {scope: 'col', class: 'w2'}, 'Decision'))), body)));
  await refresh();
}

export function event(ev) {
  if (ev.type !== 'snapfs.job.changed') return;
  clearTimeout(timer);
  timer = setTimeout(refresh, 100);
}

// The states in which a job is over.
const over = ['done', 'failed', 'rejected', 'cancelled'];

const draw = latest(() => get('/v1/jobs?limit=1000'), ({jobs: every}) => {
  const jobs = every.filter((j) => all || !over.includes(j.state));
  const now = JSON.stringify(jobs);
  if (now === shown && body.children.length) return; // a button must not go away beneath a click
  shown = now;
  const focused = body.contains(document.activeElement) && document.activeElement.dataset.what;
  jobs.sort((a, b) => (b.state === 'waiting') - (a.state === 'waiting') || b.job - a.job);
  fill(body, jobs.length ? jobs.map(row) : el('tr', {}, el('td', {colSpan: 4}, 'There are none.')));
  if (focused) [...body.querySelectorAll('button')].find(b => b.dataset.what === focused)?.focus();
});

async function refresh() {
  try { await draw(); } catch (e) { say(e.message); }
}

function row(j) {
  const may = me.scopes.includes('promote');
  const decide = (what, kind) => {
    const b = button(what[0].toUpperCase() + what.slice(1), async () => {
      try {
        const done = await post(`/v1/jobs/${j.job}/${what}`, what === 'approve' ? {plan: j.plan ?? ''} : undefined);
        say(`Job ${done.job} is ${done.state}.`);
      } catch (e) {
        say(e.message);
      }
      refresh();
    }, {class: kind, disabled: !may, 'aria-label': `${what} job ${j.job}`});
    b.dataset.what = `${what} ${j.job}`;
    return b;
  };
  return el('tr', {},
    el('th', {scope: 'row'}, String(j.job)),
    el('td', {}, command(j.command), el('div', {class: 'dim'}, path(j.workspace), ', ', when(j.submitted))),
    el('td', {}, j.state, j.why && el('div', {class: 'dim'}, j.why), j.state === 'waiting' && el('div', {class: 'dim'}, count(j.changes, 'step')),
      j.sandbox && el('div', {}, el('a', {href: '#/sandbox/' + encodeURIComponent(j.sandbox)}, j.sandbox))),
    el('td', {}, j.state === 'waiting' && el('div', {class: 'buttons'}, decide('approve', 'main'), decide('reject')),
      j.decided && el('span', {class: 'dim'}, `by ${j.decided}`)));
}

export function key(letter) {
  if (letter !== 'j' && letter !== 'k') return false;
  const list = [...body.querySelectorAll('button')];
  const at = list.indexOf(document.activeElement);
  list[Math.max(0, Math.min(list.length - 1, at + (letter === 'j' ? 1 : -1)))]?.focus();
  return true;
}
