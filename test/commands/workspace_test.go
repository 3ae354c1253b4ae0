package commands

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A workspace is a directory on a disk of its own, and what its real tree must hold. Every edit
// adds a line that no other edit adds, its token, and no edit removes a line.
type workspace struct {
	backend, dir string

	// real excludes what may replace a token on purpose from all else that touches the
	// real tree: edits and merges hold it for reading.
	real sync.RWMutex

	mu        sync.Mutex
	must      map[string]string     // the tokens that the real tree must hold, with the edit that wrote each
	free      map[string]bool       // those that somebody has replaced on purpose once
	deleting  map[*sandbox][]string // the tokens that a promotion of the sandbox, now played, may delete
	sandboxes []*sandbox
}

// A sandbox is one that a worker has made. Its mutex is held by what reads and writes its files.
type sandbox struct {
	sync.Mutex
	name string
	// replaces says that its version of a file has been chosen over the real one, so
	// that its promotion may replace tokens.
	replaces bool
	states   []string
}

const sections = 8

// newWorkspace makes one for the backend on a disk as the backend needs it.
func newWorkspace(t *testing.T, backend string) *workspace {
	t.Helper()
	disk := map[string]string{"btrfs": "btrfs"}[backend]
	if disk == "" {
		disk = "ext4"
	}
	w := &workspace{backend: backend, dir: treetest.Small(t, disk, 512<<20), must: map[string]string{}, free: map[string]bool{}, deleting: map[*sandbox][]string{}}
	w.dir = filepath.Join(w.dir, "")
	for i := range 6 {
		var b strings.Builder
		for s := range sections {
			fmt.Fprintf(&b, "=%d\nline\nline\nline\n", s)
		}
		path := filepath.Join(w.dir, fileName(i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func fileName(i int) string { return []string{"f0", "f1", "f2", "f3", "d/f4", "d/f5"}[i%6] }

// holds returns the tokens in the real tree, with the file of each.
func (w *workspace) holds() (map[string]string, error) {
	found := map[string]string{}
	err := filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != w.dir || d != nil && d.Name() == "lost+found" {
			return fs.SkipDir
		}
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "p:") || strings.HasPrefix(line, "s:") {
				found[line] = path
			}
		}
		return err
	})
	return found, err
}

// missing returns the tokens that must be in the real tree and are not.
func (w *workspace) missing() ([]string, error) {
	now, err := w.holds()
	w.mu.Lock()
	defer w.mu.Unlock()
	var gone []string
	for _, tokens := range w.deleting {
		for _, token := range tokens {
			if now[token] == "" && w.must[token] != "" {
				delete(w.must, token)
				w.free[token] = true
			}
		}
	}
	for token, by := range w.must {
		if now[token] == "" {
			gone = append(gone, token+" of "+by)
		}
	}
	slices.Sort(gone)
	for token, file := range now {
		if w.must[token] == "" && !w.free[token] {
			w.must[token] = file
		}
	}
	return gone, err
}

// excuse frees the tokens of a kind ("s:", or "" for all) that are not in the real tree.
func (w *workspace) excuse(kind string) error {
	now, err := w.holds()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, token := range slices.Collect(maps.Keys(w.must)) {
		if now[token] == "" && strings.HasPrefix(token, kind) {
			delete(w.must, token)
			w.free[token] = true
		}
	}
	return err
}

// expectDeletion says that a promotion of s, until endDeletion, may delete the file with those of its tokens that
// the lines of has contain: the tokens that the sandbox has under other names. All others must stay.
func (w *workspace) expectDeletion(s *sandbox, file, has string) error {
	data, err := os.ReadFile(filepath.Join(w.dir, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	inside := strings.Fields(has)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, token := range strings.Fields(string(data)) {
		if (strings.HasPrefix(token, "p:") || strings.HasPrefix(token, "s:")) && slices.Contains(inside, token) {
			w.deleting[s] = append(w.deleting[s], token)
		}
	}
	return err
}

// endDeletion ends what expectDeletion has begun for s.
func (w *workspace) endDeletion(s *sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.deleting, s)
}

// personEdits appends a token to a real file in place, or writes a new file. An edit counts only
// if the file that it wrote is still the one of that name afterwards: what writes through an
// open file to one that a promotion has replaced has lost its file, and would see that.
func (w *workspace) personEdits(r *rand.Rand, n int) (string, error) {
	w.real.RLock()
	defer w.real.RUnlock()
	token := fmt.Sprintf("p:%s-%d", w.backend, n)
	path := filepath.Join(w.dir, fileName(r.IntN(6)))
	if r.IntN(8) == 0 {
		path = filepath.Join(w.dir, fmt.Sprintf("p%d", n))
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.WriteString(token + "\n"); err != nil {
		return "", err
	}
	wrote, err := f.Stat()
	is, nerr := os.Stat(path)
	if err != nil || nerr != nil || !os.SameFile(wrote, is) {
		return "", err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.must[token] = path
	return token + " in " + path, nil
}

func (w *workspace) add(s *sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes = append(w.sandboxes, s)
}

func (w *workspace) remove(s *sandbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes = slices.DeleteFunc(w.sandboxes, func(o *sandbox) bool { return o == s })
}

// forget removes the sandbox of which a command reported that it is gone: the command that removed it was killed
// before it could report success.
func (w *workspace) forget(report string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes = slices.DeleteFunc(w.sandboxes, func(s *sandbox) bool {
		return strings.Contains(report, " "+s.name+": no sandbox has this name")
	})
}

// rename gives the sandbox another name. The caller holds the mutex of s.
func (w *workspace) rename(s *sandbox, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.name = name
}

// nameOf returns the name of a sandbox, also to a worker that does not hold its mutex.
func (w *workspace) nameOf(s *sandbox) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.name
}

// any returns one of the sandboxes, or nil.
func (w *workspace) any(r *rand.Rand) *sandbox {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.sandboxes) == 0 {
		return nil
	}
	return w.sandboxes[r.IntN(len(w.sandboxes))]
}

func (w *workspace) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sandboxes)
}
