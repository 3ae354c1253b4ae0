// What the commands of a sandbox have used, the limits that they reached, and where the network proxy let them go.
import {el, fill, bar, count, size} from './dom.js';
import {get, of as urlOf, past} from './api.js';

// bytes returns a size such as 4G, 512MiB or 100k as a number.
export function bytes(text) {
  const [, n, unit] = /^([\d.]+)\s*([kmgt]?)/i.exec(text ?? '') ?? [];
  return n ? Number(n) * 1024 ** ' kmgt'.indexOf((unit || ' ').toLowerCase()) : 0;
}

// now returns bars of what runs in the sandbox uses at present, of what its limits allow.
function now({limits, usage: u}) {
  const share = (label, used, most, text) => used !== undefined && bar(label, most ? `${text(used)} of ${text(most)}` : text(used), most ? used / most : 0, used >= most && most ? 'refused' : undefined);
  const plain = n => String(n), seconds = n => `${(n / 1e9).toFixed(2)} s`;
  const waits = Object.entries(u.pressure ?? {}).map(([what, p]) => bar(`waits for ${what}`, `${p.some.toFixed(0)} %`, p.some / 100));
  return [
    share('memory', u.memory, bytes(limits.memory), size), share('processes', u.pids, Number(limits.pids) || 0, plain), share('disk', u.disk, u.disk_limit, size),
    share('files', u.inodes, u.inodes_limit, plain), u.cpu_time_ns !== undefined && bar('processor', seconds(u.cpu_time_ns), 0), u.throttled_ns > 0 && bar('waited for its share of processor', seconds(u.throttled_ns), 0), ...waits,
  ].filter(Boolean);
}

export async function usage(s, content) {
  const [events, limits] = await Promise.all([past(s.name, 5000), get(urlOf(s.name) + '/limits')]);
  const of = type => events.filter(e => e.type === 'snapfs.' + type && (!e.sandboxid || e.sandboxid === s.id));
  const ended = of('command.ended'), reached = of('limit.reached');
  const bars = (title, list) => [el('h3', {}, title), list.length ? el('div', {class: 'bars'}, list) : el('p', {class: 'dim'}, 'None.')];
  const memory = Math.max(0, ...ended.map(e => e.data.memory_bytes ?? 0)), cpu = Math.max(0, ...ended.map(e => e.data.cpu_seconds ?? 0));
  const seconds = Math.max(0, ...ended.map(e => e.data.seconds ?? 0)), most = bytes(s.limits.memory);
  const tally = (list, key) => [...list.reduce((m, e) => m.set(key(e), (m.get(key(e)) ?? 0) + 1), new Map())].sort((a, b) => b[1] - a[1]).slice(0, 12);
  const place = e => e.data.host + (e.data.port ? ':' + e.data.port : '');
  const allowed = tally(of('network.allowed'), place), refused = tally(of('network.refused'), place);
  const top = Math.max(1, ...[...allowed, ...refused].map(([, n]) => n));
  fill(content,
    limits.usage && bars('Now', now(limits)),
    bars('Used', [
      memory && bar('memory, at most at once', most ? `${size(memory)} of ${size(most)}` : size(memory), most ? memory / most : 0),
      cpu && bar('processor', `${cpu.toFixed(2)} s`, seconds ? cpu / Math.max(cpu, seconds) : 1),
    ].filter(Boolean)),
    bars('Reached limits', tally(reached, e => `${e.data.limit} ${e.data.value ?? ''}`).map(([text, n]) => bar(text, count(n, 'time'), n / reached.length, 'refused'))),
    bars('Allowed connections', allowed.map(([text, n]) => bar(text, String(n), n / top))),
    bars('Refused connections', refused.map(([text, n]) => bar(text, String(n), n / top, 'refused'))));
}
