// The background commands of a sandbox, with their output as it comes.
import {el, fill, say, button, command, output, when} from './dom.js';
import {get, of, post, send, text} from './api.js';

const most = 400000; // characters of an output that are shown

export class Commands {
  constructor(sandbox, session) {
    this.s = sandbox;
    this.may = session.scopes.includes('run');
  }

  async load(content) {
    if (!this.list) {
      const input = el('input', {id: 'command', required: true, autocomplete: 'off', spellcheck: false, disabled: !this.may});
      this.list = el('ol', {class: 'log'});
      this.title = el('h3', {hidden: true});
      this.out = el('pre', {tabIndex: 0, role: 'log', 'aria-label': 'Output', id: 'output', hidden: true});
      fill(content, el('form', {
        onsubmit: async ev => {
          ev.preventDefault();
          try {
            const c = await post(of(this.s.name) + '/commands', {command: input.value});
            input.value = '';
            say('');
            await this.refresh();
            this.watch(c);
          } catch (e) { say(e.message); }
        },
      }, el('label', {for: 'command'}, 'Command'), input, el('button', {disabled: !this.may}, 'Run in the sandbox')),
      !this.may && el('p', {class: 'dim'}, 'To run commands, log in with a token that has the scope run.'), this.list, this.title, this.out);
    }
    await this.refresh();
  }

  async refresh() {
    const {commands} = await get(of(this.s.name) + '/commands');
    fill(this.list, commands.length ? commands.reverse().map(c => el('li', {}, button('Output', () => this.watch(c), {'aria-label': `output of command ${c.id}`}), ' ', command(c.args),
      el('span', {class: 'dim'}, ` ${c.state}, ${when(c.began)}`))) : el('li', {class: 'dim'}, 'No command runs in the background.'));
  }

  // watch shows the output of a command, until it ends or another one is shown.
  async watch(c) {
    this.stop?.abort();
    const stop = this.stop = new AbortController();
    this.title.hidden = this.out.hidden = false;
    fill(this.title, 'Output of ', command(c.args));
    this.out.textContent = '';
    try {
      await text(await send('GET', `${of(this.s.name)}/commands/${c.id}/output?follow=true`, {accept: 'application/octet-stream', signal: stop.signal}), part => {
        const end = this.out.scrollHeight - this.out.scrollTop - this.out.clientHeight < 40;
        this.out.append(output(part));
        while (this.out.textContent.length > most && this.out.childNodes.length > 1) this.out.firstChild.remove();
        if (end) this.out.scrollTop = this.out.scrollHeight;
        if (!this.out.isConnected) stop.abort();
      });
      if (this.out.isConnected) await this.refresh();
    } catch (e) {
      if (!stop.signal.aborted) say(e.message);
    }
  }
}
