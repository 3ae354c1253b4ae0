//go:build linux

package record

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/workflow/evidence"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
)

// lengthen adds n records of refused connections to the log of the recorded sandbox, as if its programs had tried
// them, and returns the sandbox's id. It writes the lines itself, since only reading them is measured.
func (p *pair) lengthen(n int) (id string, err error) {
	rec, err := p.e.Catalog().Get(recorded)
	if err != nil {
		return "", err
	}
	l := evidence.Of(p.e.Catalog()).Log(rec.ID)
	last, err := l.Last()
	if err != nil {
		return "", err
	}
	lines, _, err := l.Lines()
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(l.Dir(), audit.LogName), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriter(f)
	at, prev, r := time.Now().UTC(), audit.Digest(lines[len(lines)-1]), last
	r.Type = events.NetworkRefused
	for i := range n {
		r.Seq, r.Prev = r.Seq+1, prev
		r.Data = map[string]any{"host": fmt.Sprintf("h%d.example.org", i%50), "port": 443, "reason": "not allowed by the policy"}
		r.Time = at.Format(time.RFC3339Nano)
		line, err := audit.Canonical(r)
		if err != nil {
			return "", err
		}
		prev = audit.Digest(line)
		if _, err := fmt.Fprintf(out, "%s\n", line); err != nil {
			return "", err
		}
	}
	return rec.ID, out.Flush()
}
