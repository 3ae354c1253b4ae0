package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
)

// limitValues is the text in help and documents that explains how to write the value of a limit.
const limitValues = `A size is a number and a unit: 512M, 1.5G, 100MiB. K, M, G, T, P and E are powers
of 1024, in upper or lower case, also with B or iB; B is a byte. A rate is a size and
/s: 50M/s. A number of processors may have decimals; other numbers are whole and have
no unit. A duration is one or more numbers with ns, us, ms, s, m, h, and d for days,
days first: 90s, 1h30m, 2d12h.

"none" is no limit; it also removes a limit of a named profile. These are errors, and
the message names a right value: zero, an empty value, a sign, a blank, an exponent,
NaN, digits other than 0 to 9, a number without its unit, and a value below the least
or above the most. After an error nothing is made or changed. A limit between this
host's size and the most is accepted, and limits nothing here; snapfs says so whenever
something starts, where it knows the host's size. With --queue or --if-room, a sandbox
that may use more memory or disk than this host has is refused (snapfs help room).

The disk limit counts what is written to a tree. /tmp, /dev/shm and /run are in memory
then and hold at most as much again, each; with a pool, /tmp counts with the trees. A
change of the limit reaches them with the next start. Without a pool, the /tmp of a
named sandbox with a disk limit lasts as long as its processes.

The memory limit counts what lies in /tmp, /dev/shm and /run in memory, too, and each
holds at most as much, with one file for 4 KiB of it or 10,000 files. Without limits /tmp
holds at most half of this host's memory, /dev/shm a fifth and /run a tenth.`

// limitsTable returns, for help and documents, a row for each limit with a value: its name, the kind of its
// value, its bounds, and the effect of a value above the host's capacity.
func limitsTable() [][5]string {
	rows := [][5]string{{"limit", "least", "most", "larger than the host", "reason for the least"}}
	for _, l := range new(catalog.Limits).Fields() {
		if l.Least != "" {
			rows = append(rows, [5]string{l.Name, l.Least, l.Most, l.Beyond, l.Why})
		}
	}
	return rows
}

// limitsText returns the table of limits (resources that a sandbox may use) as text for help.
func limitsText() string {
	var b strings.Builder
	for _, r := range limitsTable() {
		fmt.Fprintf(&b, "    %-13s %-6s %-14s %s\n", r[0], r[1], r[2], r[3])
	}
	return strings.TrimRight(b.String(), "\n")
}

// writeLimits writes docs/limits.md, the page with the table of limits that a sandbox can have, to w.
func writeLimits(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Limits\n\nWritten by `make docs` from engine/catalog/limitlist.go, like `snapfs help limits`.\n\n" + limitValues + "\n\n")
	for i, r := range limitsTable() {
		name := "`" + r[0] + "`"
		if i == 0 {
			name = r[0]
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, r[1], r[2], r[3], r[4])
		if i == 0 {
			b.WriteString("| --- | --- | --- | --- | --- |\n")
		}
	}
	b.WriteString("\n`keep-end` is true or false.\n")
	_, err := io.WriteString(w, b.String())
	return err
}
