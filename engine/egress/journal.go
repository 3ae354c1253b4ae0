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
	// NetLog is the file of a sandbox's events, and netLogMost how long it gets
	// before the older half goes to netLogOld.
	NetLog, NetLogOld = "net.jsonl", "net.old.jsonl"
	maxLogBytes       = 1 << 20
	// netCounts is the file of what was counted.
	netCounts = "net.json"
)

// A Journal keeps what was decided about a sandbox's network.
type Journal struct {
	mu   sync.Mutex
	path string // of the file
}

func (eg *Gateway) JournalOf(rec *catalog.Record) *Journal {
	return &Journal{path: filepath.Join(eg.cat.Path(rec.Name), NetLog)}
}

// Put keeps an event. Where the sandbox is being removed, or the disk is full, it is
// lost, and the traffic goes on.
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
		_ = os.Rename(j.path, filepath.Join(filepath.Dir(j.path), NetLogOld)) // else it grows
	}
	_, _ = f.Write(append(line, '\n')) // see above
}

// count keeps what was counted. Where that cannot be, what was before stays.
func (j *Journal) count(c network.Counters) {
	text, err := json.Marshal(c)
	if err != nil {
		return
	}
	path := filepath.Join(filepath.Dir(j.path), netCounts)
	if os.WriteFile(path+".new", text, 0o600) == nil {
		_ = os.Rename(path+".new", path) // see above
	}
}

// Counted is what was counted last, in the sandbox's life. Unless it runs, nothing is open.
func (j *Journal) Counted(runs bool) (c network.Counters) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(j.path), netCounts))
	if err != nil || json.Unmarshal(text, &c) != nil {
		return network.Counters{} // nothing was counted yet
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
