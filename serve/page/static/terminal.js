// A command of a sandbox in a terminal: its WebSocket, shown by xterm.js. What the command writes can change what the
// terminal shows, and nothing else: no link, no clipboard, no title.
import {el, say, button, output, size} from './dom.js';
import {get, of, socket} from './api.js';

const shell = 'command -v bash > /dev/null && exec bash; exec sh';
const protocol = 'snapfs.terminal.v1';
const mostWritten = 256 << 10; // bytes of output that xterm.js has and has not yet shown
const mostQueued = 2 << 20; // bytes of output that wait for that
const mostPasted = 512 << 10; // the server ends a session of which more input waits
const piece = 64 << 10; // bytes of a message

// The terminals by the sandboxes' IDs: one stays while its command runs, also when the page shows something else.
const all = new Map();

// terminal returns the terminal of a sandbox.
export function terminal(sandbox, session) {
  for (const [id, t] of all) {
    if (t.live || id === sandbox.id) continue;
    t.close();
    all.delete(id);
  }
  if (!all.has(sandbox.id)) all.set(sandbox.id, new Session(sandbox, session));
  return all.get(sandbox.id);
}

// endAll ends the commands of all terminals.
export function endAll() {
  for (const t of all.values()) {
    t.end();
    t.close();
  }
  all.clear();
}

// Ctrl+W deletes a word in a shell, and closes the tab in a browser.
addEventListener('beforeunload', ev => { if ([...all.values()].some(t => t.live)) ev.preventDefault(); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const t of all.values()) if (t.term) t.term.options.theme = theme();
});

// theme returns the colours of the page for xterm.js, which gives others on them enough contrast.
function theme() {
  const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
  return {background: of('--card'), foreground: of('--ink'), cursor: of('--ink'), cursorAccent: of('--card'), selectionBackground: of('--bar'), selectionInactiveBackground: of('--line')};
}

// pasted returns a text without control characters, by which it could end a bracketed paste and be typed.
const pasted = text => text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g, '');

class Session {
  constructor(sandbox, session) {
    this.s = sandbox;
    const may = session.scopes.includes('run');
    this.input = el('input', {id: 'terminal-command', autocomplete: 'off', spellcheck: false, placeholder: 'a shell', disabled: !may});
    this.go = el('button', {disabled: !may, class: 'main'}, 'Open a terminal');
    this.stop = button('End it', () => this.end(), {disabled: true});
    const reader = el('input', {type: 'checkbox', onchange: () => { this.reads = reader.checked; if (this.term) this.term.options.screenReaderMode = this.reads; }});
    this.screen = el('div', {class: 'screen', role: 'group', 'aria-label': `Terminal of ${sandbox.name}`, hidden: true});
    this.screen.addEventListener('paste', ev => this.paste(ev), true);
    this.state = el('p', {class: 'dim', role: 'status'});
    this.box = el('div', {class: 'terminal-box'},
      el('form', {onsubmit: ev => { ev.preventDefault(); this.open().catch(e => say(e.message)); }},
        el('label', {for: 'terminal-command'}, 'Command'), this.input, this.go, this.stop, el('label', {}, reader, ' for a screen reader')),
      may ? el('p', {class: 'dim'}, el('kbd', {}, 'Ctrl+Shift+X'), ' leaves the terminal, ', el('kbd', {}, 'Ctrl+Shift+C'), ' and ', el('kbd', {}, 'Ctrl+Shift+V'), ' copy and paste.')
        : el('p', {class: 'dim'}, 'To open a terminal, log in with a token that has the scope run.'),
      this.screen, this.state);
  }

  load(content) {
    if (this.box.parentNode !== content) content.replaceChildren(this.box);
    this.screen.scrollIntoView({block: 'nearest'});
  }

  // open starts the command in a new terminal.
  async open() {
    if (this.live) return;
    this.live = true;
    this.state.textContent = 'It starts.';
    this.go.disabled = this.input.disabled = true;
    try {
      const [{Terminal}, {FitAddon}, {allow}] = await Promise.all([import('./xterm/xterm.mjs'), import('./xterm/addon-fit.mjs'), import('./styles.js')]);
      allow();
      this.close();
      this.make(Terminal, FitAddon);
      this.connect();
    } catch (e) {
      this.over(`The terminal cannot be shown: ${e.message}`);
    }
  }

  make(Terminal, FitAddon) {
    this.screen.hidden = false;
    this.screen.scrollIntoView({block: 'nearest'}); // xterm.js draws only what can be seen
    const term = this.term = new Terminal({
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono').trim(), fontSize: 14, theme: theme(),
      minimumContrastRatio: 4.5, scrollback: 5000, screenReaderMode: Boolean(this.reads), cursorBlink: false,
    });
    const fit = new FitAddon();
    term.loadAddon(fit);
    term.parser.registerOscHandler(8, () => true); // no links
    term.attachCustomKeyEventHandler(ev => this.key(ev));
    term.open(this.screen);
    const fits = () => { if (this.screen.clientWidth && this.screen.clientHeight && term === this.term) fit.fit(); };
    fits();
    this.resized = new ResizeObserver(() => requestAnimationFrame(fits));
    this.resized.observe(this.screen);
    term.onData(text => this.type(new TextEncoder().encode(text)));
    term.onBinary(text => this.type(Uint8Array.from(text, c => c.charCodeAt(0))));
    term.onResize(({cols, rows}) => this.send({type: 'resize', cols, rows}));
    term.focus();
  }

  connect() {
    this.queue = [];
    this.queued = this.written = this.lost = 0;
    this.result = '';
    const ws = this.ws = socket(of(this.s.name) + '/terminal', protocol);
    ws.binaryType = 'arraybuffer';
    let opened = false;
    ws.onopen = () => {
      opened = true;
      const {cols, rows} = this.term ?? {};
      this.send({type: 'start', command: this.input.value || shell, cols, rows});
    };
    ws.onmessage = ev => {
      if (!this.term) return; // the session has ended
      if (typeof ev.data === 'string') this.event(JSON.parse(ev.data));
      else this.show(new Uint8Array(ev.data));
    };
    ws.onclose = async ev => {
      if (ws !== this.ws) return;
      this.ws = null;
      if (!opened) {
        try { await get(of(this.s.name)); } catch (e) { this.result = e.message; }
        this.over(this.result || 'The server has refused the terminal.');
        return;
      }
      const why = ev.reason ? `: ${ev.reason}` : '';
      this.over(this.result || `The connection is lost${why}. The command has ended with it.`);
    };
  }

  event(e) {
    if (e.type === 'started') {
      this.stop.disabled = false;
      this.state.textContent = 'The command runs.';
    } else if (e.type === 'lost') this.left(e.bytes);
    else if (e.type === 'exit') this.result = `The command has ended with status ${e.exit.exit}${e.exit.timed_out ? ', because its time was over' : ''}.`;
    else if (e.type === 'error') this.result = e.error.detail ?? e.error.title ?? 'The command cannot run.';
  }

  // show passes output to xterm.js, as much as it can take. A browser cannot slow the server down, so what is too much is
  // left out, the oldest first.
  show(bytes) {
    this.queue.push(bytes);
    this.queued += bytes.length;
    while (this.queued > mostQueued && this.queue.length > 1) {
      const {length} = this.queue.shift();
      this.queued -= length;
      this.left(length);
    }
    this.drain(this.term);
  }

  drain(term) {
    while (term === this.term && this.queue.length && this.written < mostWritten) {
      const bytes = this.queue.shift();
      this.queued -= bytes.length;
      this.written += bytes.length;
      term.write(bytes, () => {
        this.written -= bytes.length;
        this.drain(term);
      });
    }
  }

  left(bytes) {
    this.lost += bytes;
    this.state.textContent = `The command runs. ${size(this.lost)} of its output came too fast and were left out.`;
  }

  send(message) {
    if (this.ws?.readyState === WebSocket.OPEN) this.ws.send(JSON.stringify(message));
  }

  type(bytes) {
    if (this.ws?.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < bytes.length; at += piece) this.ws.send(bytes.subarray(at, at + piece));
  }

  paste(ev) {
    ev.preventDefault();
    ev.stopPropagation();
    const text = pasted(ev.clipboardData?.getData('text/plain') ?? '');
    if (text.length > mostPasted) say(`A pasted text has at most ${size(mostPasted)}.`);
    else if (this.ws) this.term.paste(text);
  }

  // key decides on a key before xterm.js, and reports whether that gets it.
  key(ev) {
    if (!ev.ctrlKey || !ev.shiftKey || ev.altKey || ev.metaKey) return true;
    const letter = ev.key.toLowerCase();
    if (letter === 'v') return false; // the browser pastes
    if (letter !== 'c' && letter !== 'x') return true;
    ev.preventDefault();
    if (ev.type !== 'keydown') return false;
    if (letter === 'x') (this.stop.disabled ? this.input : this.stop).focus();
    else if (this.term.hasSelection()) document.execCommand('copy');
    return false;
  }

  end() {
    if (!this.live) return;
    this.result ||= 'You have ended the command.';
    this.ws?.close(1000);
  }

  // over shows why the terminal has ended, with its last screen.
  over(text) {
    const focused = this.box.contains(document.activeElement);
    this.live = false;
    this.go.disabled = this.input.disabled = false;
    this.stop.disabled = true;
    if (this.term) this.term.options.disableStdin = true;
    this.state.textContent = output(text) + (this.lost ? ` ${size(this.lost)} of its output came too fast and were left out.` : '');
    if (focused) this.go.focus();
  }

  close() {
    this.resized?.disconnect();
    this.term?.dispose();
    this.term = null;
  }
}
