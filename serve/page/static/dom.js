// What the page shows comes from here: elements with text, never markup. Names of sandboxes, files and commands may be
// written by whoever ran in a sandbox.

// Characters that change how others look, or that cannot be seen.
const odd = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udfff]/g;
const shown = c => {
  const n = c.codePointAt(0);
  if (n < 0x20) return String.fromCharCode(0x2400 + n);
  return n === 0x7f ? '\u2421' : `\\u{${n.toString(16)}}`;
};

// output returns text of several lines so that it can be shown.
export const output = text => String(text).replace(odd, shown);

// visible returns a name, or another text of one line, so that it can be shown.
export const visible = text => output(text).replace(/[\t\n]/g, shown);

// el returns an element. Properties that begin with on are listeners; children are elements, or texts, which become visible.
export function el(name, props, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (key === 'class') e.className = value;
    else if (key in e && typeof e[key] !== 'string') e[key] = value;
    else e.setAttribute(key, value === true ? '' : value);
  }
  add(e, ...children);
  return e;
}

export function add(to, ...children) {
  for (const c of children.flat()) {
    if (c === undefined || c === null || c === false || c === '') continue;
    to.append(c instanceof Node ? c : visible(c));
  }
}

// fill replaces the content of an element.
export function fill(e, ...children) {
  e.replaceChildren();
  add(e, ...children);
  return e;
}

export const id = name => document.getElementById(name);
export const path = text => el('bdi', {class: 'path'}, text);
export const command = args => el('bdi', {class: 'cmd'}, args.map(a => /^[\w@%+=:,./-]+$/.test(a) ? a : `'${a.replaceAll("'", "'\\''")}'`).join(' '));
export const count = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;
export const button = (text, onclick, more) => el('button', {type: 'button', onclick, ...more}, text);

// say announces a text; '' removes the last one.
export const say = text => { id('said').textContent = output(text); };

// size returns a number of bytes as a text.
export function size(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return `${i && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export const when = text => new Date(text).toLocaleString(undefined, {dateStyle: 'short', timeStyle: 'medium'});

const svgName = 'http://www.w3.org/2000/svg';
const svg = (name, attributes, text) => {
  const e = document.createElementNS(svgName, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = visible(text);
  return e;
};

// bar returns a bar: share, from 0 to 1, of its length is filled.
export function bar(label, value, share, kind) {
  const e = svg('svg', {viewBox: '0 0 400 22', role: 'img', 'aria-label': visible(`${label}: ${value}`)});
  const width = Math.max(share > 0 ? 2 : 0, Math.min(1, share) * 400);
  e.append(svg('rect', {class: 'back', x: 0, y: 1, width: 400, height: 20, rx: 4}),
    svg('rect', {class: `bar ${kind ?? ''}`, x: 0, y: 1, width, height: 20, rx: 4}),
    svg('text', {x: 8, y: 15}, label.length > 40 ? label.slice(0, 39) + '…' : label),
    svg('text', {x: 392, y: 15, 'text-anchor': 'end'}, value));
  return e;
}

// latest returns a function that loads something and applies it, unless it was called again meanwhile: answers may come in
// another order than their requests.
export function latest(load, apply) {
  let calls = 0;
  return async (...args) => {
    const mine = ++calls;
    const value = await load(...args);
    if (mine === calls) await apply(value, ...args);
  };
}
