#!/usr/bin/env python3
"""Verify a bundle of `snapfs evidence export` with the Python standard library only.

    verify_evidence.py [--key host.pub] FILE...

It shares no code with snapfs: who distrusts one of the two asks the other. For each file it prints
one line: the path, then yes or no with the name of the reason, for integrity, signer,
completeness and policy. If older records were removed under a rule, as the host has signed, and
nothing else is missing, completeness is "removed". The exit status is 0 if all others are yes.
"""
import base64
import binascii
import datetime
import hashlib
import json
import sys

FORMAT = "https://github.com/snapfs/snapfs/evidence/bundle/v1"
KINDS = [("https://github.com/snapfs/snapfs/evidence/start/v1", "snapfs.evidence.began"),
         ("https://github.com/snapfs/snapfs/evidence/end/v1", "snapfs.evidence.ended")]
REMOVAL = ("https://github.com/snapfs/snapfs/evidence/removal/v1", "snapfs.evidence.removed")
RECORD = {"seq", "prev", "time", "boot", "up", "type", "sandbox", "data"}


class Fault(Exception):
    pass


def need(true, name):
    if not true:
        raise Fault(name)


# Ed25519 (RFC 8032), to verify only.
P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)


def recover(y, sign):
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * ROOT % P
    if (x * x - x2) % P or (x == 0 and sign):
        return None
    return P - x if x & 1 != sign else x


def point(raw):
    y = int.from_bytes(raw, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    x = recover(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def mul(n, p):
    q = (0, 1, 1, 0)
    while n:
        if n & 1:
            q = add(q, p)
        p, n = add(p, p), n >> 1
    return q


BY = 4 * pow(5, P - 2, P) % P
BASE = (recover(BY, 0), BY, 1, recover(BY, 0) * BY % P)


def signed(key, message, sig):
    if len(sig) != 64 or len(key) != 32:
        return False
    a, r, s = point(key), point(sig[:32]), int.from_bytes(sig[32:], "little")
    if a is None or r is None or s >= L:
        return False
    h = int.from_bytes(hashlib.sha512(sig[:32] + key + message).digest(), "little") % L
    left, right = mul(s, BASE), add(r, mul(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 and (left[1] * right[2] - right[1] * left[2]) % P == 0


# Canonical JSON (RFC 8785) of values without fractions.
def canonical(v):
    def order(v):
        if isinstance(v, dict):
            return {k: order(v[k]) for k in sorted(v, key=lambda k: k.encode("utf-16-be"))}
        return [order(x) for x in v] if isinstance(v, list) else v
    return json.dumps(order(v), ensure_ascii=False, separators=(",", ":")).encode()


def once(pairs):
    need(len({k for k, _ in pairs}) == len(pairs), "record")
    return dict(pairs)


def whole(n):
    need(False, "record")


def parse(line, name):
    try:
        v = json.loads(line.decode(), object_pairs_hook=once, parse_float=whole, parse_constant=whole)
        need(canonical(v) == line, name)
        return v
    except (ValueError, Fault, RecursionError):
        raise Fault(name) from None


def unbase64(text, name):
    try:
        raw = base64.b64decode(text, validate=True)
        need(base64.b64encode(raw).decode() == text, name)
        return raw
    except (binascii.Error, ValueError, TypeError):
        raise Fault(name) from None


# The Merkle tree of RFC 6962.
def sha(data):
    return hashlib.sha256(data).digest()


def tree(leaves):
    if not leaves:
        return sha(b"")
    level, size = [sha(b"\0" + leaf) for leaf in leaves], len(leaves)
    while size > 1:  # the last node of an odd level moves up as it is
        level = [sha(b"\1" + level[i] + level[i + 1]) if i + 1 < size else level[i] for i in range(0, size, 2)]
        size = len(level)
    return level[0]


def cover(a, z):
    """Return the fewest complete subtrees over the records from a to before z, as their first records and sizes."""
    while a < z:
        size = 1
        while a % (2 * size) == 0 and a + 2 * size <= z:
            size *= 2
        yield a, size
        a += size


class Bundle:
    def __init__(self, data):
        lines = data.split(b"\n")
        need(len(lines) >= 3 and lines[-1] == b"", "form")
        head = parse(lines[0], "form")
        need(isinstance(head, dict) and set(head) - {"cosigned", "witnesses"} == {"format", "sandbox", "key", "records", "manifests", "statements"}, "form")
        need(head["format"] == FORMAT, "form")
        self.sandbox, self.key = head["sandbox"], unbase64(head["key"], "form")
        need(all(head[k] for k in ("cosigned", "witnesses") if k in head), "form")
        counts = [head["records"], *(head["manifests"] or []), head["statements"], head.get("cosigned", 0)]
        self.witnesses = [w.split("+", 2) for w in head.get("witnesses", [])]
        need(all(type(n) is int and n >= 0 for n in counts) and isinstance(head["manifests"], list), "form")
        need(len(self.key) == 32 and head["records"] >= 1 and head["statements"] in (1, 2) and sum(counts) + 3 == len(lines), "form")
        parts, at = [], 1
        for n in counts:
            parts.append(lines[at:at + n])
            at += n
        self.lines, self.manifests, self.statements, self.cosigned = parts[0], parts[1:-2], parts[-2], parts[-1]
        self.note = parse(lines[at], "form")
        self.cosigned = [parse(line, "form") for line in self.cosigned]
        need(all(isinstance(note, str) for note in [self.note, *self.cosigned]), "form")
        for name, digits, key in self.witnesses:
            raw = unbase64(key, "form")
            need(len(raw) == 33 and raw[0] == 4 and sha(name.encode() + b"\n" + raw)[:4].hex() == digits, "form")

    def integrity(self):
        self.chain()
        self.clock()
        need(self.host_signed(self.note) == self.size, "truncated")
        for r in self.records:
            if r["type"] == REMOVAL[1]:
                p, _ = self.opened(r["data"]["statement"].encode(), REMOVAL[0])
                need(1 <= p["log"]["size"] <= r["seq"], "statement")
        self.sizes = [self.statement(i, line) for i, line in enumerate(self.statements)]
        roots = self.roots()
        need(len(self.manifests) <= len(roots), "manifest")
        for m, root in zip(self.manifests, roots):
            need(tree(m).hex() == root, "manifest")
        self.cosignatures()

    def roots(self):
        return list(dict.fromkeys(r["data"].get("root") for r in self.records if r["type"] == "snapfs.diff.recorded"))

    def chain(self):
        prev, self.records, self.gap = "0" * 64, [], None
        for line in self.lines:
            r = parse(line, "record")
            need(isinstance(r, dict) and set(r) == RECORD and isinstance(r["data"], dict), "record")
            self.records.append(r)
        if len(self.records) > 2 and self.records[1]["seq"] == 1 and self.records[2]["seq"] > 2:
            said = [r for r in self.records[2:] if r["type"] == REMOVAL[1]]
            need(said, "dropped")
            envelope = json.loads(said[-1]["data"]["statement"])
            self.removal = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
            self.gap = self.removal["removed"]
            need(self.gap["first"] == 2 and self.gap["last"] + 1 == self.records[2]["seq"] <= said[-1]["seq"], "dropped")
        for i, (r, line) in enumerate(zip(self.records, self.lines)):
            if i == 2 and self.gap:
                prev = self.gap["last_digest"]
            need(r["sandbox"] == self.sandbox, "session")
            need(r["seq"] == (i if i < 2 or not self.gap else self.gap["last"] + i - 1), "order")
            need(r["prev"] == prev, "chain")
            prev = hashlib.sha256(line).hexdigest()
        self.size = self.records[-1]["seq"] + 1
        self.known = {(i, 1): sha(b"\0" + line) for i, line in enumerate(self.lines[:2])} if self.gap else {}
        if self.gap:
            parts = [b for a, z in zip([2, *self.gap["sizes"]], self.gap["sizes"]) for b in cover(a, z)]
            need(len(parts) == len(self.gap["hashes"]) and self.gap["sizes"][-1] == self.gap["last"] + 1, "dropped")
            self.known.update(zip(parts, map(bytes.fromhex, self.gap["hashes"])))

    def record(self, n):
        return self.records[n if n < 2 or not self.gap else n - self.gap["last"] + 1]

    def root(self, size, start=0):
        """Return the root of the first size records, with the hashes of subtrees of removed ones."""
        if not self.gap:
            return tree(self.lines[:size])
        length, first = size - start, self.gap["last"] + 1
        if start >= first:
            return tree(self.lines[start - first + 2:size - first + 2])
        if (start, length) in self.known:
            return self.known[start, length]
        need(length > 1, "dropped")
        half = 1 << ((length - 1).bit_length() - 1)
        return sha(b"\1" + self.root(start + half, start) + self.root(size, start + half))

    def clock(self):
        last = None
        for r in self.records:
            try:
                stamp = r["time"].split(".")[0].rstrip("Z")
                now = datetime.datetime.fromisoformat(stamp).timestamp()
            except (ValueError, AttributeError):
                raise Fault("record") from None
            if last:
                passed, up = now - last[0], (r["up"] - last[2]) / 1000
                if r["boot"] == last[1]:
                    need(up >= 0 and abs(passed - up) <= 61, "clock")
                else:
                    need(passed >= -61, "clock")
            last = (now, r["boot"], r["up"])

    def cosignatures(self):
        last, used = 0, set()
        for note in self.cosigned:
            text, _, rest = note.partition("\n\n")
            host, *lines = rest.split("\n")[:-1]
            size = self.host_signed(f"{text}\n\n{host}\n", "cosignature")
            need(last < size <= self.size and lines and rest.endswith("\n"), "cosignature")
            last, seen = size, set()
            for line in lines:
                w = next((w for w in self.witnesses if self.cosigned_by(w, text + "\n", line)), None)
                need(w and w[0] + w[2] not in seen, "cosignature")
                seen.add(w[0] + w[2])
            used |= seen
        need(len(used) == len(self.witnesses), "cosignature")

    def cosigned_by(self, witness, text, line):
        start, key = f"\u2014 {witness[0]} ", base64.b64decode(witness[2])
        if not line.startswith(start):
            return False
        raw = unbase64(line[len(start):], "cosignature")
        seconds = int.from_bytes(raw[4:12], "big")
        message = f"cosignature/v1\ntime {seconds}\n{text}".encode()
        return len(raw) == 76 and raw[:4].hex() == witness[1] and seconds < 1 << 40 and signed(key[1:], message, raw[12:])

    def host_signed(self, note, fault="checkpoint"):
        """Check that the host has signed the note, a checkpoint of this log, and return its size."""
        name = "snapfs/evidence/" + self.sandbox
        text, _, rest = note.partition("\n\n")
        start = f"\u2014 {name} "
        need(rest.startswith(start) and rest.endswith("\n") and rest.count("\n") == 1, fault)
        sig = unbase64(rest[len(start):-1], fault)
        need(sig[:4] == sha(name.encode() + b"\n\x01" + self.key)[:4], fault)
        need(signed(self.key, (text + "\n").encode(), sig[4:]), fault)
        size = int(text.split("\n")[1])
        need(1 <= size <= self.size, "truncated")
        need(text == f"{name}\n{size}\n{base64.b64encode(self.root(size)).decode()}", fault)
        return size

    def opened(self, line, kind_of):
        e = parse(line, "statement")
        need(isinstance(e, dict) and set(e) == {"payload", "payloadType", "signatures"} and len(e["signatures"]) == 1, "statement")
        body, kind = unbase64(e["payload"], "statement"), e["payloadType"]
        need(kind == "application/vnd.in-toto+json" and set(e["signatures"][0]) == {"keyid", "sig"}, "statement")
        need(e["signatures"][0]["keyid"] == hashlib.sha256(self.key).hexdigest(), "statement")
        text = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(body), body)
        need(signed(self.key, text, unbase64(e["signatures"][0]["sig"], "statement")), "statement")
        s = parse(body, "statement")
        need(s["_type"] == "https://in-toto.io/Statement/v1" and s["predicateType"] == kind_of, "statement")
        p = s["predicate"]
        need(p["sandbox"] == self.sandbox, "session")
        need(1 <= p["log"]["size"] < self.size, "truncated")
        need(self.root(p["log"]["size"]).hex() == p["log"]["root"], "statement")
        return p, body

    def statement(self, i, line):
        p, body = self.opened(line, KINDS[i][0])
        n = p["log"]["size"]
        r = self.record(n)
        need(r["type"] == KINDS[i][1] and r["data"].get("statement") == hashlib.sha256(body).hexdigest(), "statement")
        if i == 1:
            before = [r for r in self.records if r["seq"] < n]
            own, said = summary(before), p["summary"]
            if self.gap:
                counted = any(r["type"] == "snapfs.network.counted" for r in before)
                own, said = (since(s, self.gap["last"] + 1, counted) for s in (own, said))
            need(canonical(own) == canonical(said), "statement")
        return n

    def signer(self, trusted):
        need(trusted is not None, "unknown-key")
        need(trusted == self.key, "other-key")

    def completeness(self):
        need(self.records[0]["type"] == "snapfs.sandbox.created" and self.sizes[0] == 1, "no-start")
        end, running = (self.sizes[1] if len(self.sizes) == 2 else self.size), set(self.gap["running"] if self.gap else [])
        need(not (self.gap and self.gap["torn"]), "torn")
        for r in self.records:
            need(r["type"] != "snapfs.evidence.torn", "torn")
            need(r["seq"] <= end or r["type"] in ("snapfs.sandbox.removed", REMOVAL[1]), "after-end")
            if r["type"] == "snapfs.command.started":
                running.add(r["data"].get("run"))
            if r["type"] in ("snapfs.command.ended", "snapfs.command.refused"):
                running.discard(r["data"].get("run"))
        need(len(self.sizes) == 2, "no-end")
        need(not running, "no-result")
        need(len(self.roots()) == len(self.manifests), "no-manifest")
        need(not self.gap, "removed")  # as the host has signed

    def policy(self):
        policy, tests = self.records[0]["data"].get("policy", {}), self.gap["tests"] if self.gap else 0
        if self.gap and self.gap["policy_fault"]:
            raise Fault(self.gap["policy_fault"])
        for r in self.records:
            if r["type"] == "snapfs.selftest.done":
                tests += 1
                need(not r["data"].get("crossed"), "isolation")
            if r["type"] == "snapfs.network.allowed":
                need(policy.get("network") != "none", "network")
        need(tests or not policy.get("prove"), "not-measured")


def since(s, first, counted):
    """Return the part of a summary that is about the records from first on."""
    def late(one):
        return min(one[f] for f in ("started", "ended", "record") if f in one) >= first
    out = {k: [one for one in s.get(k, []) if late(one)] for k in ("commands", "checks", "limits", "promotions")}
    if counted:
        out["destinations"] = s.get("destinations")
    if "diff" in s and late(s["diff"]):
        out["diff"] = s["diff"]
    return out


def summary(records):
    def pick(r, into, *fields):
        return {**into, **{f: r["data"][f] for f in fields if f in r["data"]}}
    out, starts = {"commands": [], "promotions": [], "limits": [], "destinations": []}, {}
    for r in records:
        kind, n = r["type"], r["seq"]
        if kind == "snapfs.command.started":
            starts[r["data"].get("run")] = n
        elif kind == "snapfs.command.ended" and r["data"].get("run") in starts:
            out["commands"].append(pick(r, {"started": starts[r["data"].get("run")], "ended": n}, "status", "milliseconds", "cpu_milliseconds", "memory_bytes"))
        elif kind == "snapfs.check.ended":
            out.setdefault("checks", []).append(pick(r, {"record": n}, "name", "reason", "status", "output"))
        elif kind == "snapfs.limit.reached":
            out["limits"].append(pick(r, {"record": n}, "limit", "value"))
        elif kind in ("snapfs.changes.promoted", "snapfs.promotion.undone", "snapfs.promotion.redone"):
            out["promotions"].append(pick(r, {"record": n, "type": kind}, "promotion", "plan", "target", "changes"))
        elif kind == "snapfs.network.counted":
            out["destinations"] = r["data"].get("destinations", [])
        elif kind == "snapfs.diff.recorded":
            out["diff"] = pick(r, {"record": n}, "root", "entries")
    return out


def verdicts(data, trusted):
    """Return "yes" or the name of the fault for integrity, signer, completeness and policy."""
    try:
        b = Bundle(data)
        b.integrity()
    except (Fault, KeyError, TypeError, AttributeError, IndexError, ValueError, RecursionError) as e:
        return [e.args[0] if isinstance(e, Fault) else "form", "not-run", "not-run", "not-run"]
    out = ["yes"]
    for check in (lambda: b.signer(trusted), b.completeness, b.policy):
        try:
            check()
            out.append("yes")
        except Fault as e:
            out.append(e.args[0])
    return out


def read_key(path):
    text = "".join(line for line in open(path).read().split("\n") if not line.startswith("-----"))
    der = base64.b64decode(text)
    need(len(der) == 44 and der[:12] == bytes.fromhex("302a300506032b6570032100"), "no Ed25519 key in " + path)
    return der[12:]


def main(args):
    trusted, good = None, True
    if args[:1] == ["--key"]:
        trusted, args = read_key(args[1]), args[2:]
    if args == ["-"]:  # the names of the files, one a line
        args = sys.stdin.read().split("\n")[:-1]
    for path in args:
        with open(path, "rb") as f:
            found = verdicts(f.read(), trusted)
        good = good and found in (["yes"] * 4, ["yes", "yes", "removed", "yes"])
        print(path, *found)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
