package egress

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/network"
)

const (
	// NetLog is the file of a sandbox's events. When it exceeds maxLogBytes it is renamed to
	// NetLogOld, which replaces the previous one.
	NetLog = "net.jsonl"
	// NetLogOld is the previous NetLog.
	NetLogOld   = "net.old.jsonl"
	maxLogBytes = 1 << 20
	// netCounts is the file of the counters.
	netCounts = "net.json"
)

// A Journal logs the network decisions and counters of one sandbox.
type Journal struct {
	mu   sync.Mutex
	path string // of the log
}

// JournalOf returns the journal of a sandbox.
func (eg *Gateway) JournalOf(rec *catalog.Record) *Journal {
	return &Journal{path: filepath.Join(eg.cat.Path(rec.Name), NetLog)}
}

// Put appends an event to the log. It drops the event if that fails, as it does on a full
// disk: traffic does not depend on the log.
func (j *Journal) Put(ev network.Event) {
	line, err := json.Marshal(ev)
	if err != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > maxLogBytes {
		_ = os.Rename(j.path, filepath.Join(filepath.Dir(j.path), NetLogOld)) // if it fails, the log grows
	}
	_, _ = f.Write(append(line, '\n')) // best effort
}

// count saves the counters. If that fails, the previous ones stay on disk.
func (j *Journal) count(c network.Counters) {
	text, err := json.Marshal(c)
	if err != nil {
		return
	}
	path := filepath.Join(filepath.Dir(j.path), netCounts)
	if os.WriteFile(path+".new", text, 0o600) == nil {
		_ = os.Rename(path+".new", path) // best effort
	}
}

// Counted returns the counters saved last. If the sandbox does not run, their numbers of open
// connections are 0.
func (j *Journal) Counted(runs bool) (c network.Counters) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(j.path), netCounts))
	if err != nil || json.Unmarshal(text, &c) != nil {
		return network.Counters{} // nothing counted yet
	}
	if runs {
		return c
	}
	c.Open = 0
	for rule, r := range c.Rules {
		r.Open = 0
		c.Rules[rule] = r
	}
	return c
}
