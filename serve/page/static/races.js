// Races: several commands for one purpose, each in a sandbox of its own, side by side while they run. A person compares
// what they changed, and promotes the one that they choose as any other sandbox, step by step.
import {el, fill, say, button, command, count, output, path, size} from './dom.js';
import {get, of, send, past, lines} from './api.js';
import {Plan} from './plan.js';
import {literal} from './sandboxes.js';

let me, race = null; // the race goes on, and stays, while the page shows something else
let form, cards, compared, chosen;

const over = ['passed', 'failed', 'timed out', 'stopped', 'broken'];

export async function show(main, _, session) {
  me = session;
  form ??= makeForm();
  cards = el('div', {class: 'attempts', id: 'attempts-now'});
  compared = el('div');
  chosen = el('div');
  fill(main, el('h2', {}, 'Races'), form, cards, compared, chosen);
  enable();
  if (race) {
    draw();
    if (race.rows) drawRows();
  }
}

addEventListener('beforeunload', ev => { if (race && !race.done) ev.preventDefault(); });

// end ends the race, with the session.
export function end() {
  race?.stop.abort();
  race = form = null;
}

function makeForm() {
  const field = (name, label, more) => [el('label', {for: 'race-' + name}, label), el('input', {id: 'race-' + name, name, autocomplete: 'off', spellcheck: false, ...more})];
  const choose = el('select', {id: 'race-choose', name: 'choose'}, [['person', 'I choose'], ['first', 'the first that passes'], ['high', 'the highest score'], ['low', 'the lowest score']]
    .map(([value, text]) => el('option', {value}, text)));
  return el('form', {class: 'card race', onsubmit: ev => { ev.preventDefault(); begin(ev.target).catch(e => say(e.message)); }},
    el('label', {for: 'race-attempts'}, 'Attempts, one command in each line'), el('textarea', {id: 'race-attempts', name: 'attempts', rows: 4, required: true, spellcheck: false}),
    field('workspace', 'Workspace', {placeholder: 'that of the server'}), field('check', 'Check'), field('score', 'Score'), field('timeout', 'Time for each', {placeholder: '10m'}),
    el('label', {for: 'race-choose'}, 'The winner is'), choose,
    el('div', {class: 'buttons'}, el('button', {class: 'main', name: 'start'}, 'Start the race'), button('End it', () => race?.stop.abort(), {name: 'stop'})),
    el('p', {class: 'dim', id: 'race-may'}));
}

// enable sets which buttons of the form can be used.
function enable() {
  const may = me.scopes.includes('run'), runs = Boolean(race && !race.done);
  form.elements.start.disabled = !may || runs;
  form.elements.stop.disabled = !runs;
  form.querySelector('#race-may').textContent = may ? 'If you close the page while it runs, no sandbox is left.' : 'To race, log in with a token that has the scope run.';
}

async function begin(f) {
  const value = name => f.elements[name].value.trim(), choose = value('choose');
  const body = {attempts: value('attempts').split('\n').map(line => line.trim()).filter(Boolean), keep_passed: true};
  for (const name of ['check', 'score', 'timeout']) if (value(name)) body[name] = value(name);
  if (value('workspace')) body.sandbox = {workspace: value('workspace')};
  if (choose === 'first') body.first = true;
  else if (choose === 'low') body.lower = true;
  if (choose !== 'high' && choose !== 'low') delete body.score;
  const mine = race = {stop: new AbortController(), commands: body.attempts, attempts: body.attempts.map((_, i) => ({attempt: i + 1, state: 'waiting', seconds: 0})), names: [], used: []};
  say('');
  fill(compared);
  fill(chosen);
  enable();
  draw();
  try {
    await lines(await send('POST', '/v1/races', {body, accept: 'application/x-ndjson', signal: mine.stop.signal}), line => {
      if (!line.trim()) return;
      const ev = JSON.parse(line);
      if (ev.type === 'attempt') {
        mine.attempts[ev.attempt.attempt - 1] = ev.attempt;
        mine.names[ev.attempt.attempt - 1] = ev.attempt.sandbox;
      } else if (ev.type === 'result') mine.result = ev.result;
      else if (ev.type === 'error') mine.error = ev.error.detail ?? ev.error.title;
      if (mine === race) draw();
    });
    if (!mine.result) mine.error ??= 'The connection is lost: no sandbox is left.';
  } catch (e) {
    mine.error = mine.stop.signal.aborted ? 'You have ended the race: no sandbox is left.' : e.message;
  }
  mine.done = true;
  if (mine !== race || !form) return;
  if (mine.error) say(mine.error);
  else mine.attempts = mine.result.attempts;
  enable();
  draw();
  if (!mine.result) return;
  await use(mine);
  await compare(mine);
}

// use finds what the commands of the attempts have used.
async function use(r) {
  r.used = await Promise.all(r.names.map(async name => {
    const ended = name ? (await past(name, 50)).filter(e => e.type === 'snapfs.command.ended') : [];
    const most = key => Math.max(0, ...ended.map(e => e.data[key] ?? 0));
    return {cpu: most('cpu_seconds'), memory: most('memory_bytes')};
  }));
  if (r === race) draw();
}

// draw shows the attempts next to each other.
function draw() {
  const focused = cards.contains(document.activeElement) && document.activeElement.dataset.what;
  fill(cards, race.attempts.map((a, i) => {
    const row = (what, ...value) => value.some(v => v || v === 0) ? [el('dt', {}, what), el('dd', {}, ...value)] : [];
    const wins = race.result?.winner === a.attempt, used = race.used[i] ?? {}, same = race.result?.identical.find(g => g.includes(a.attempt))?.filter(n => n !== a.attempt);
    const more = (what, text) => text && el('details', {}, el('summary', {}, what), block(text, `${what} of attempt ${a.attempt}`));
    return el('section', {class: `card attempt ${wins ? 'wins' : ''}`, 'aria-labelledby': `attempt-${a.attempt}`},
      el('h3', {id: `attempt-${a.attempt}`}, `Attempt ${a.attempt}`, wins && ' wins'), el('p', {}, command([race.commands[i]])),
      el('dl', {class: 'facts'},
        row('State', el('span', {class: a.state === 'passed' ? 'added' : over.includes(a.state) ? 'deleted' : 'running'}, a.state), a.why && ` ${a.why}`),
        row('Status', a.exit !== undefined && String(a.exit)), row('Check', a.checked !== undefined && (a.checked ? `failed with ${a.checked}` : 'passed')),
        row('Score', a.score !== undefined && String(a.score)), row('Time', a.seconds > 0 && `${a.seconds.toFixed(2)} s`),
        row('Used', [used.cpu && `${used.cpu.toFixed(2)} s of processor`, used.memory && `${size(used.memory)} of memory`].filter(Boolean).join(', ')),
        row('Change', a.paths !== undefined && count(a.paths, 'path'), a.added_lines !== undefined && [' ', el('span', {class: 'added'}, `+${a.added_lines}`), ' ', el('span', {class: 'deleted'}, `−${a.deleted_lines}`)]),
        row('Same as', same?.length > 0 && `attempt ${same.join(', ')}`)),
      more('Output', a.output), more('Output of the check', a.check_output),
      race.done && a.sandbox && el('p', {class: 'buttons'}, act('Choose', a, () => choose(a), 'main'), act('Remove', a, () => remove(a)),
        el('a', {href: '#/sandbox/' + encodeURIComponent(a.sandbox)}, a.sandbox)));
  }));
  if (focused) [...cards.querySelectorAll('button')].find(b => b.dataset.what === focused)?.focus();
}

// block returns a text of several lines.
function block(text, label) {
  const pre = el('pre', {tabIndex: 0, 'aria-label': label});
  pre.textContent = output(text);
  return pre;
}

// act returns a button for an attempt.
function act(text, a, does, kind) {
  const b = button(text, async () => { try { await does(); } catch (e) { say(e.message); } }, {class: kind, 'aria-label': `${text} attempt ${a.attempt}`, disabled: text === 'Remove' && !me.scopes.includes('run')});
  b.dataset.what = `${text} ${a.attempt}`;
  return b;
}

// choose shows the plan of an attempt's promotion, on which the person decides.
async function choose(a) {
  race.plan = new Plan(await get(of(a.sandbox)), me);
  const content = el('div');
  fill(chosen, el('section', {class: 'card', 'aria-labelledby': 'chosen'}, el('h3', {id: 'chosen', tabIndex: -1}, `Promotion of attempt ${a.attempt}`), content));
  await race.plan.load(content);
  chosen.querySelector('h3').focus();
}

async function remove(a) {
  await send('DELETE', of(a.sandbox));
  if (race.plan?.s.name === a.sandbox) fill(chosen);
  a.sandbox = '';
  say(`Attempt ${a.attempt} is removed.`);
  draw();
  if (!race.rows) return;
  const stay = race.rows.stay.filter(other => other !== a); // a promoted attempt keeps its column: it has no changes any more
  race.rows = {stay, list: race.rows.list.filter(([, kinds]) => stay.some(o => kinds.has(o.attempt)))};
  drawRows();
}

// compare shows each path that an attempt changed, with what every attempt did to it.
async function compare(r) {
  const stay = r.attempts.filter(a => a.sandbox), paths = new Map();
  for (const a of stay) {
    const d = await get(of(a.sandbox) + '/diff?limit=1000');
    a.more = Boolean(d.next);
    for (const c of d.changes) paths.set(c.path, (paths.get(c.path) ?? new Map()).set(a.attempt, c.kind));
  }
  r.rows = {stay, list: [...paths].sort(([a], [b]) => a < b ? -1 : 1)};
  if (r === race) drawRows();
}

function drawRows() {
  const {stay, list} = race.rows;
  const row = ([name, kinds]) => {
    const lines = el('tr', {hidden: true});
    const b = button('Lines', async () => {
      lines.hidden = !lines.hidden;
      b.setAttribute('aria-expanded', String(!lines.hidden));
      if (lines.hidden || lines.firstChild) return;
      fill(lines, el('td'), stay.map(a => el('td', {}, kinds.has(a.attempt) && patch(a, name))), el('td'));
    }, {'aria-expanded': 'false', 'aria-label': `lines of ${name}`});
    return [el('tr', {}, el('th', {scope: 'row'}, path(name)), stay.map(a => el('td', {class: kinds.get(a.attempt)}, kinds.get(a.attempt) ?? el('span', {class: 'dim'}, 'unchanged'))), el('td', {class: 'w1'}, b)), lines];
  };
  fill(compared, list.length > 0 && el('section', {class: 'card wide', 'aria-labelledby': 'compared', tabIndex: 0}, el('h3', {id: 'compared'}, 'Changes, next to each other'),
    stay.some(a => a.more) && el('p', {class: 'dim'}, 'Of an attempt with more than 1,000 changes only these are compared.'),
    el('table', {}, el('thead', {}, el('tr', {}, el('th', {scope: 'col'}, 'Path'), stay.map(a => el('th', {scope: 'col'}, `Attempt ${a.attempt}`)), el('th', {scope: 'col', class: 'w1'}, 'Patch'))),
      el('tbody', {}, list.flatMap(row)))));
}

// patch returns what an attempt changed in a file, and fills it once it is there.
function patch(a, name) {
  const pre = block('', `patch of attempt ${a.attempt}`);
  (async () => {
    try {
      const s = await get(of(a.sandbox));
      const r = await send('GET', `${of(a.sandbox)}/diff?path=${encodeURIComponent(literal(s.workspace, name))}`, {accept: 'text/x-diff'});
      pre.replaceChildren(...((await r.text()).slice(0, 200000) || 'no lines').split('\n').map(line => {
        const e = el('span', {class: {'+': 'added', '-': 'deleted'}[line[0]]});
        e.textContent = output(line + '\n');
        return e;
      }));
    } catch (e) {
      pre.textContent = e.message;
    }
  })();
  return pre;
}

export function event(ev) {
  if (race?.plan && ev.subject === race.plan.s.name) race.plan.stale();
}

export function key(letter) {
  if (letter === 'j' || letter === 'k') {
    const by = letter === 'j' ? 1 : -1;
    if (race?.plan?.move(by)) return true;
    const list = [...cards.querySelectorAll('button')], at = list.indexOf(document.activeElement);
    list[Math.max(0, Math.min(list.length - 1, at + by))]?.focus();
    return true;
  }
  return (letter === 'a' || letter === 'x') && Boolean(race?.plan?.decide(letter === 'a'));
}
