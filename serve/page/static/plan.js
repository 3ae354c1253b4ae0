// The plan of a promotion: a person approves or rejects each step, or each hunk of a changed text, sees the plan of what is
// approved, and promotes exactly that, by its fingerprint.
import {el, fill, say, button, count, output, path} from './dom.js';
import {of, post} from './api.js';
import {literal} from './sandboxes.js';

export class Plan {
  constructor(sandbox, session) {
    this.s = sandbox;
    this.may = session.scopes.includes('promote');
  }

  // load makes the plan anew. Decisions on steps that are the same stay.
  async load(content) {
    this.content = content;
    const before = new Map((this.rows ?? []).map(r => [r.key, r.yes]));
    this.plan = await post(of(this.s.name) + '/plan');
    const held = new Map();
    for (const h of this.plan.held) held.set(h.path, [...held.get(h.path) ?? [], h.why]);
    this.rows = this.plan.steps.map(s => {
      const why = held.get(s.path);
      return {path: s.path, do: s.do, what: s.what ?? [], merged: s.merged, why, key: JSON.stringify([s, why]), yes: undefined};
    });
    for (const r of this.rows) r.yes = before.get(r.key) === 'some' ? undefined : before.get(r.key);
    this.draw();
  }

  draw() {
    const p = this.plan;
    this.warning = el('p', {class: 'warn', role: 'status'});
    this.tally = el('p', {class: 'dim', role: 'status'});
    this.next = el('div', {class: 'card', hidden: true});
    this.go = button('Review what is approved', () => this.review(), {class: 'main'});
    fill(this.content,
      el('p', {class: 'dim'}, 'To ', path(p.target), `, plan ${p.fingerprint.slice(0, 12)}`, p.elsewhere ? `; ${count(p.elsewhere, 'change')} outside the workspace stay in the sandbox` : ''),
      p.commits?.length > 0 && el('p', {}, 'Moves ', path(p.commits.join(' '))),
      p.conflicts.length > 0 && el('div', {}, el('p', {class: 'warn'}, 'Conflicts: resolve them in the sandbox after ', el('code', {}, `snapfs refresh ${this.s.name}`)),
        el('ul', {}, p.conflicts.map(c => el('li', {}, path(c.path), ' ', c.why)))),
      this.rows.length ? el('table', {}, el('thead', {}, el('tr', {}, el('th', {scope: 'col', class: 'w1'}, 'Step'), el('th', {scope: 'col'}, 'Path'), el('th', {scope: 'col', class: 'w2'}, 'Decision'))),
        el('tbody', {}, this.rows.map(r => this.row(r)))) : el('p', {class: 'dim'}, 'There is nothing to promote.'),
      this.warning, this.tally,
      this.rows.length > 0 && el('p', {class: 'buttons'}, button('Approve all', () => this.all(true)), button('Reject all', () => this.all(false)), this.go, button('Plan again', () => this.again())),
      !this.may && el('p', {class: 'dim'}, 'To promote, log in with a token that has the scope promote.'), this.next);
    this.update();
  }

  row(r) {
    r.buttons = [['Approve', true], ['Reject', false]].map(([text, yes]) => button(text, () => this.set(r, yes), {'aria-label': `${text} ${r.path}`}));
    r.lines = el('div', {class: 'hunks', hidden: true});
    r.split = r.do === 'change' && r.what.includes('content') && button('Hunks', () => this.split(r), {'aria-label': `hunks of ${r.path}`, 'aria-expanded': 'false'});
    r.tr = el('tr', {onfocusin: () => { for (const o of this.rows) o.tr.classList.toggle('now', o === r); }},
      el('td', {class: r.do}, r.do), el('td', {}, path(r.path), r.what.length ? el('span', {class: 'dim'}, ' ' + r.what.join(', ')) : null,
        r.merged && el('span', {class: 'dim'}, ' combines both sides'), r.why?.map(w => el('div', {class: 'warn'}, 'needs approval: ', w)), r.lines),
      el('td', {}, el('div', {class: 'buttons'}, r.buttons, r.split)));
    return r.tr;
  }

  // split shows the hunks of a changed text, to decide on each, or hides them.
  async split(r) {
    try {
      if (!r.hunks) {
        const {hunks} = await post(of(this.s.name) + '/hunks', {only: [literal(this.plan.target, r.path)]});
        r.hunks = hunks.map(h => ({...h, yes: r.yes}));
        fill(r.lines, hunks.length ? r.hunks.map((h, i) => this.hunk(r, h, i)) : el('p', {class: 'dim'}, 'It can only be promoted as a whole.'));
      }
      r.lines.hidden = !r.lines.hidden;
      r.split.setAttribute('aria-expanded', String(!r.lines.hidden));
      this.update();
    } catch (e) {
      say(e.message);
    }
  }

  hunk(r, h, i) {
    const pre = el('pre', {tabIndex: 0, 'aria-label': `hunk ${i + 1} of ${r.path}`});
    pre.textContent = output(h.text);
    h.buttons = [['Approve', true], ['Reject', false]].map(([text, yes]) => button(text, () => this.setHunk(r, h, yes), {'aria-label': `${text} hunk ${i + 1} of ${r.path}`}));
    h.tr = el('div', {class: 'hunk'}, pre, el('div', {class: 'buttons'}, h.buttons));
    return h.tr;
  }

  // setHunk decides on a hunk; the decision on the file follows: true for all, some for a part.
  setHunk(r, h, yes) {
    h.yes = h.yes === yes ? undefined : yes;
    const all = r.hunks.map(o => o.yes);
    if (all.includes(undefined)) r.yes = undefined;
    else if (all.every(Boolean)) r.yes = true;
    else r.yes = all.some(Boolean) ? 'some' : false;
    this.update();
  }

  set(r, yes) {
    this.decided(r, r.yes === yes ? undefined : yes);
    this.update();
  }

  all(yes) {
    for (const r of this.rows) this.decided(r, yes);
    this.update();
  }

  decided(r, yes) {
    r.yes = yes;
    for (const h of r.hunks ?? []) h.yes = yes;
  }

  update() {
    for (const r of this.rows) for (const o of [r, ...r.hunks ?? []]) [true, false].forEach((yes, i) => o.buttons[i].setAttribute('aria-pressed', String(o.yes === yes)));
    const yes = this.rows.filter(r => r.yes).length, open = this.rows.filter(r => r.yes === undefined).length;
    this.tally.textContent = `${yes} approved, ${this.rows.length - yes - open} rejected, ${open} open`;
    this.next.hidden = true;
    this.go.disabled = !this.may || !yes || open > 0;
  }

  // selection returns what the API is to select: all, or the approved paths with nothing below them that is not approved.
  selection() {
    const yes = this.rows.filter(r => r.yes), no = this.rows.filter(r => !r.yes);
    const pattern = p => literal(this.plan.target, p);
    const s = {};
    if (no.length) s.only = yes.filter(r => !no.some(o => o.path.startsWith(r.path + '/'))).map(r => pattern(r.path));
    const allow = yes.filter(r => r.why).map(r => pattern(r.path));
    if (allow.length) s.allow = {paths: allow};
    const some = yes.filter(r => r.yes === 'some');
    if (some.length) s.hunks = Object.fromEntries(some.map(r => [r.path, r.hunks.filter(h => h.yes).map(h => h.id)]));
    return s;
  }

  // review asks for the plan of what is approved, which must have no other step, and shows it.
  async review() {
    try {
      const select = this.selection(), yes = new Set(this.rows.filter(r => r.yes).map(r => r.path));
      const part = s => select.hunks?.[s.path] && el('span', {class: 'dim'}, ` ${select.hunks[s.path].length} of ${count(this.rows.find(r => r.path === s.path).hunks.length, 'hunk')}`);
      const p = await post(of(this.s.name) + '/plan', select);
      const parents = new Set(this.rows.filter(r => r.do === 'add').map(r => r.path));
      const more = p.steps.filter(s => !yes.has(s.path) && !(parents.has(s.path) && [...yes].some(y => y.startsWith(s.path + '/'))));
      if (more.length) throw new Error(`The plan would also ${more[0].do} ${more[0].path}, which is not approved. Plan again, or use snapfs promote --pick.`);
      if (p.conflicts.length) throw new Error(`There is a conflict at ${p.conflicts[0].path}: ${p.conflicts[0].why}`);
      const once = [...crypto.getRandomValues(new Uint8Array(16))].map(b => b.toString(16).padStart(2, '0')).join('');
      const promote = button('Promote', () => this.promote(p, select, once, promote), {class: 'main'});
      fill(this.next, el('p', {}, `This makes ${count(p.steps.length, 'change')} in `, path(p.target), ', all or nothing:'),
        el('ul', {}, p.steps.slice(0, 200).map(s => el('li', {}, el('span', {class: s.do}, s.do), ' ', path(s.path), part(s)))), el('p', {}, promote));
      this.next.hidden = false;
      promote.focus();
    } catch (e) {
      say(e.message);
    }
  }

  async promote(p, select, once, b) {
    b.disabled = true;
    try {
      const done = await post(of(this.s.name) + '/promote', {...select, plan: p.fingerprint}, {headers: {'Idempotency-Key': once}});
      say('');
      const undo = button('Undo', async () => {
        try {
          const back = await post(`/v1/promotions/${encodeURIComponent(done.id)}/undo`);
          say(`Undone: ${count(back.changes, 'path')}.`);
          await this.again();
        } catch (e) { say(e.message); }
      });
      fill(this.content, el('p', {}, `Promoted ${count(done.changes, 'path')}`, done.id ? ` as ${done.id}.` : '.'), el('p', {class: 'buttons'}, done.id && undo, button('Plan again', () => this.again())));
      if (done.id) undo.focus();
      this.rows = [];
    } catch (e) {
      say(e.message);
      b.disabled = false;
    }
  }

  async again() {
    try { await this.load(this.content); } catch (e) { say(e.message); }
  }

  // stale says that the sandbox has changed since the plan was made: a plan never changes beneath a person.
  stale() {
    if (this.warning?.isConnected) this.warning.textContent = 'Something has happened in the sandbox since: plan again.';
  }

  // move moves the focus to another step, or to another hunk that is shown, and reports whether there is one.
  move(by) {
    if (!this.rows?.length || !this.rows[0].tr.isConnected) return false;
    const all = this.rows.flatMap(r => [r, ...r.lines.hidden ? [] : r.hunks]);
    const at = all.findLastIndex(o => o.tr.contains(document.activeElement));
    all[Math.max(0, Math.min(all.length - 1, at + by))].buttons[0].focus();
    return true;
  }

  // decide decides on the step or the hunk with the focus, and reports whether there is one.
  decide(yes) {
    const r = this.rows?.find(r => r.tr.contains(document.activeElement));
    if (!r) return false;
    const h = r.hunks?.find(h => h.tr?.contains(document.activeElement));
    if (h && h.yes !== yes) this.setHunk(r, h, yes);
    else if (!h) this.decided(r, yes);
    this.update();
    return true;
  }
}
