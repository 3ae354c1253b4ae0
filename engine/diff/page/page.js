'use strict';
(() => {
  const id = name => document.getElementById(name);
  const all = (what, within = document) => [...within.querySelectorAll(what)];
  const files = all('article');
  const box = f => f.querySelector('.seen input');
  const fold = f => f.querySelector('details');

  // A path of the tree is the names on the way to it: no text is kept in attributes.
  const items = all('nav li').map(li => {
    const leaf = li.querySelector(':scope>a,:scope>details>summary>a,:scope>bdi,:scope>details>summary>bdi');
    const up = li.parentElement.closest('li');
    const link = leaf.tagName === 'A' ? leaf : null;
    return {li, up, link, name: leaf.textContent, file: link && id(link.hash.slice(1))};
  });
  const byLi = new Map(items.map(i => [i.li, i]));
  for (const i of items) i.path = (i.up ? byLi.get(i.up).path : '') + i.name;
  const byFile = new Map(items.filter(i => i.file).map(i => [i.file, i]));
  const pathOf = f => {
    const i = byFile.get(f);
    return (i ? i.path : f.querySelector('.path').textContent) + ' ' + (f.querySelector('.from')?.textContent ?? '');
  };

  // Reviewed: known to this page while it is open.
  const tally = () => {
    const done = files.filter(f => box(f).checked).length;
    id('seen').textContent = `${done} of ${files.length} reviewed`;
  };
  const mark = f => {
    const done = box(f).checked;
    f.classList.toggle('done', done);
    byFile.get(f)?.li.classList.toggle('done', done);
    fold(f).open = !done;
    tally();
  };
  for (const f of files) {
    f.querySelector('.seen').hidden = false;
    box(f).setAttribute('aria-label', 'reviewed: ' + f.querySelector('.path').textContent);
    box(f).addEventListener('change', () => mark(f));
  }

  // Filter: every word must be in the path.
  const filter = () => {
    const want = id('filter').value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = path => want.every(w => path.toLowerCase().includes(w));
    for (const f of files) f.hidden = !fits(pathOf(f));
    for (const i of items) i.li.hidden = !fits(i.file ? pathOf(i.file) : i.path);
    for (const i of items) if (!i.li.hidden) for (let u = i.up; u; u = byLi.get(u).up) u.hidden = false;
    for (const s of all('main>section')) s.hidden = !s.querySelector('article:not([hidden])');
    for (const s of all('nav>section')) s.hidden = !s.querySelector('li:not([hidden])');
    id('none').hidden = !want.length || files.some(f => !f.hidden);
  };
  id('filter').addEventListener('input', filter);
  id('tools').addEventListener('submit', e => e.preventDefault());

  // Side by side: lines that went stand beside those that came in their place.
  const cell = (text, kind) => {
    const td = document.createElement('td');
    if (kind) td.className = kind;
    td.append(text);
    return td;
  };
  const pair = (gone, came) => {
    const tr = document.createElement('tr');
    const half = (row, at, kind) => row
      ? [cell(row.cells[at].textContent, kind), (() => { const c = row.cells[2].cloneNode(true); c.className = kind; return c; })()]
      : [cell('', 'none'), cell('', 'none')];
    tr.append(...half(gone, 0, gone && came !== gone ? 'd' : ''), ...half(came, 1, came && came !== gone ? 'a' : ''));
    return tr;
  };
  const single = new WeakMap();
  const split = (table, on) => {
    if (table.classList.contains('split') === on) return;
    table.classList.toggle('split', on);
    const head = table.tHead.rows[0];
    if (on) {
      single.set(head, [...head.cells]);
      const [a, b, text] = head.cells;
      head.replaceChildren(a, text.cloneNode(true), b, text);
    } else head.replaceChildren(...single.get(head));
    for (const body of table.tBodies) {
      if (!on) { body.replaceChildren(...single.get(body)); body.rows[0].cells[0].colSpan = 3; continue; }
      const rows = [...body.rows], out = [];
      single.set(body, rows);
      let gone = [], came = [];
      const flush = () => {
        for (let i = 0; i < Math.max(gone.length, came.length); i++) out.push(pair(gone[i], came[i]));
        gone = []; came = [];
      };
      for (const row of rows) {
        if (row.className === 'd') gone.push(row);
        else if (row.className === 'a') came.push(row);
        else { flush(); out.push(row.className === 'h' ? row : pair(row, row)); }
      }
      flush();
      rows[0].cells[0].colSpan = 4;
      body.replaceChildren(...out);
    }
  };
  const both = () => {
    const on = id('split').getAttribute('aria-pressed') !== 'true';
    id('split').setAttribute('aria-pressed', on);
    for (const t of all('main table')) split(t, on);
  };
  id('split').addEventListener('click', both);

  const foldAll = () => {
    const open = files.every(f => !fold(f).open);
    for (const f of files) fold(f).open = open;
    label();
  };
  const label = () => { id('fold').textContent = files.length && files.every(f => !fold(f).open) ? 'Unfold all' : 'Fold all'; };
  id('fold').addEventListener('click', foldAll);
  for (const f of files) fold(f).addEventListener('toggle', label);

  // Where one is.
  let now = null;
  const go = (f, move = true) => {
    if (!f) return;
    now?.classList.remove('now');
    if (now) byFile.get(now)?.link.removeAttribute('aria-current');
    now = f;
    f.classList.add('now');
    const link = byFile.get(f)?.link;
    link?.setAttribute('aria-current', 'location');
    if (move) {
      f.scrollIntoView({block: 'start'});
      link?.scrollIntoView({block: 'nearest'});
      fold(f).querySelector('summary').focus({preventScroll: true});
    }
  };
  const shown = () => files.filter(f => !f.hidden);
  const step = by => {
    const list = shown(), at = list.indexOf(now);
    go(list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(Math.max(at + by, 0), list.length - 1)]);
  };
  const top = () => document.querySelector('header').getBoundingClientRect().bottom;
  const hunk = by => {
    const rows = all('tr.h').filter(r => r.offsetParent && !r.closest('[hidden]'));
    const edge = top() + 16, y = r => r.getBoundingClientRect().top;
    const next = by > 0 ? rows.find(r => y(r) > edge + 4) : rows.findLast(r => y(r) < edge - 4);
    if (!next) return;
    go(next.closest('article'), false);
    scrollBy(0, y(next) - edge);
  };
  for (const f of files) f.addEventListener('focusin', () => go(f, false));
  const arrive = () => { const f = id(location.hash.slice(1)); if (f && f.matches('article')) { fold(f).open = true; go(f, false); } };
  addEventListener('hashchange', arrive);

  // Keys: single letters only where nothing is typed, and they can be switched off.
  const help = () => id('help').open ? id('help').close() : id('help').showModal();
  id('keys').addEventListener('click', help);
  id('close').addEventListener('click', help);
  const does = {
    j: () => step(1), k: () => step(-1), n: () => hunk(1), p: () => hunk(-1), s: both, '?': help,
    o: () => { if (now) fold(now).open = !fold(now).open; },
    x: () => { if (now) { box(now).checked = !box(now).checked; mark(now); if (box(now).checked) step(1); } },
    '/': () => id('filter').focus(),
  };
  addEventListener('keydown', e => {
    if (e.target === id('filter') && e.key === 'Escape') { id('filter').value = ''; filter(); id('filter').blur(); return; }
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input:not([type=checkbox])') || !id('letters').checked) return;
    if (id('help').open && e.key !== '?' || !Object.hasOwn(does, e.key)) return;
    e.preventDefault();
    does[e.key]();
  });

  const size = () => {
    const high = getComputedStyle(document.querySelector('header')).position === 'sticky' ? top() : 0;
    document.documentElement.style.setProperty('--top', high + 'px');
    document.documentElement.style.scrollPaddingTop = high + 12 + 'px';
  };
  addEventListener('resize', size);
  id('tools').hidden = false;
  size();
  for (const f of files) if (box(f).checked) mark(f);
  tally();
  arrive();
})();
