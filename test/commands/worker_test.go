package commands

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"time"
)

// A kind of command, by how often it is chosen.
type kind struct {
	name  string
	often int
	play  func(*worker, *workspace)
}

func kinds() []kind {
	return []kind{
		{"new", 6, (*worker).makes},
		{"fork", 3, (*worker).forks},
		{"exec", 20, (*worker).edits},
		{"run", 4, (*worker).runs},
		{"promote", 14, (*worker).promotes},
		{"refresh", 6, (*worker).refreshes},
		{"snapshot", 4, (*worker).marks},
		{"rollback", 3, (*worker).goesBack},
		{"undo", 3, (*worker).undoes},
		{"rm", 3, (*worker).removes},
		{"race", 1, (*worker).races},
		{"look", 8, (*worker).looks},
		{"rename", 1, (*worker).renames},
	}
}

// A worker plays one command after the other.
type worker struct {
	*play
	rand *rand.Rand
}

func (w *worker) one() {
	ws := w.spaces[w.rand.IntN(len(w.spaces))]
	sum := 0
	for _, k := range w.kinds {
		sum += k.often
	}
	at := w.rand.IntN(sum)
	for _, k := range w.kinds {
		if at -= k.often; at < 0 {
			k.play(w, ws)
			return
		}
	}
}

// snapfs runs a command in the workspace, and returns its output and whether it succeeded.
func (p *play) snapfs(ws *workspace, args ...string) (string, bool) {
	cmd := exec.Command(p.program, append([]string{"--state", p.state}, args...)...)
	cmd.Dir = ws.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	began := time.Now()
	err := cmd.Run()
	p.note(fmt.Sprintf("%s: snapfs %s", ws.backend, strings.Join(args, " ")), began, err, out.String())
	if err != nil {
		ws.forget(out.String())
	}
	return out.String(), err == nil
}

func (w *worker) makes(ws *workspace) {
	if ws.count() > 5 {
		w.removes(ws)
		return
	}
	s := &sandbox{name: w.name("b")}
	if _, ok := w.snapfs(ws, "new", "--backend", ws.backend, s.name); ok {
		ws.add(s)
	}
}

func (w *worker) forks(ws *workspace) {
	from := ws.any(w.rand)
	if from == nil || ws.count() > 6 || !from.TryLock() {
		return
	}
	defer from.Unlock()
	s, source := &sandbox{name: w.name("k"), replaces: from.replaces}, from.name
	if n := len(from.states); n > 0 && w.rand.IntN(2) == 0 {
		source += "@" + from.states[w.rand.IntN(n)]
	}
	if _, ok := w.snapfs(ws, "fork", source, s.name); ok {
		ws.add(s)
	}
}

// script returns a shell command that adds a token to a file.
func (w *worker) script() string {
	token, file := w.name("s:"), fileName(w.rand.IntN(6))
	switch w.rand.IntN(8) {
	case 0:
		return fmt.Sprintf("echo %s >> %s", token, file)
	case 2: // moves a file with all that is in it
		return fmt.Sprintf("if [ -e %[2]s ]; then mv %[2]s %[3]s; echo %[1]s >> %[3]s; fi", token, file, w.name("moved"))
	case 3: // moves one back, if it is gone
		return fmt.Sprintf("set -- moved*; [ -e %[2]s ] || [ ! -e \"$1\" ] || { mv \"$1\" %[2]s; echo %[1]s >> %[2]s; }", token, file)
	case 1:
		return fmt.Sprintf("echo %s > n%s", token, strings.TrimPrefix(token, "s:"))
	default:
		return fmt.Sprintf("sed -i 's/^=%d$/&\\n%s/' %s", w.rand.IntN(sections), token, file)
	}
}

func (w *worker) edits(ws *workspace) {
	w.withSandbox(ws, func(s *sandbox) {
		if _, ok := w.snapfs(ws, "exec", s.name, "--", "sh", "-c", w.script()); !ok {
			w.snapfs(ws, "stop", s.name) // what a killed command has left must not go on beside the next
		}
	})
}

// withSandbox calls f with a sandbox that no other worker reads or writes meanwhile.
func (w *worker) withSandbox(ws *workspace, f func(*sandbox)) {
	s := ws.any(w.rand)
	switch {
	case s == nil:
		w.makes(ws)
	case s.TryLock():
		defer s.Unlock()
		f(s)
	}
}

func (w *worker) runs(ws *workspace) {
	ws.real.RLock()
	defer ws.real.RUnlock()
	w.snapfs(ws, "run", "--backend", ws.backend, []string{"--apply", "--discard"}[w.rand.IntN(2)], "--", "sh", "-c", w.script())
}

func (w *worker) races(ws *workspace) {
	ws.real.RLock()
	defer ws.real.RUnlock()
	w.snapfs(ws, "race", "-q", "--backend", ws.backend, "--first", "--try", w.script(), "--try", w.script())
}

func (w *worker) promotes(ws *workspace) {
	w.withSandbox(ws, func(s *sandbox) {
		args := []string{"promote", s.name}
		switch w.rand.IntN(10) {
		case 0:
			args = append(args, "--mine", w.place())
		case 1, 2:
			args = append(args, "--theirs", w.place())
		case 3:
			args = append(args, "--only", fileName(w.rand.IntN(6)))
		}
		if args[len(args)-2] == "--mine" || s.replaces {
			w.replacing(ws, "", args...)
			return
		}
		if args[len(args)-2] == "--only" {
			w.promotesOnly(ws, s, args[len(args)-1])
			return
		}
		ws.real.RLock()
		w.snapfs(ws, args...)
		ws.real.RUnlock()
	})
	w.check(ws)
}

// promotesOnly promotes the change of one file. If the sandbox has renamed the file, that is a deletion: the
// tokens of the file are then in the sandbox alone, under another name that was not promoted.
func (w *worker) promotesOnly(ws *workspace, s *sandbox, file string) {
	var has string
	for tries, ok := 0, false; !ok; tries++ { // a kill may hit it
		if tries == 5 {
			return
		}
		has, ok = w.snapfs(ws, "exec", s.name, "--", "sh", "-c", fmt.Sprintf("[ -e %s ] || grep -rhE '^[ps]:' . || true", file))
	}
	ws.real.RLock()
	w.problem(ws.expectDeletion(s, file, has))
	w.snapfs(ws, "promote", s.name, "--only", file)
	ws.real.RUnlock()
	w.check(ws)
	ws.endDeletion(s)
}

// place returns a file, or all of them.
func (w *worker) place() string {
	if w.rand.IntN(2) == 0 {
		return "."
	}
	return fileName(w.rand.IntN(6))
}

// replacing runs a command that may replace tokens of a kind, while nothing else changes the real
// tree. What a kill has left half done, gc completes or reverts.
func (w *worker) replacing(ws *workspace, kind string, args ...string) {
	ws.real.Lock()
	defer ws.real.Unlock()
	w.checkLocked(ws)
	_, ok := w.snapfs(ws, args...)
	for range 5 {
		if ok {
			break
		}
		_, ok = w.snapfs(ws, "gc")
	}
	w.problem(ws.excuse(kind))
}

func (w *worker) undoes(ws *workspace) {
	w.replacing(ws, "s:", []string{"undo", "redo"}[w.rand.IntN(2)], "--yes")
	w.check(ws)
}

func (w *worker) refreshes(ws *workspace) {
	w.withSandbox(ws, func(s *sandbox) {
		args := []string{"refresh", "--stop", s.name}
		switch w.rand.IntN(6) {
		case 0:
			args, s.replaces = append(args, "--mine", "."), true
		case 1, 2:
			args = append(args, "--theirs", ".")
		}
		w.snapfs(ws, args...)
	})
}

func (w *worker) marks(ws *workspace) {
	w.withSandbox(ws, func(s *sandbox) {
		state := w.name("m")
		if _, ok := w.snapfs(ws, "snapshot", s.name, state); ok {
			s.states = append(s.states, state)
		}
	})
}

func (w *worker) goesBack(ws *workspace) {
	w.withSandbox(ws, func(s *sandbox) {
		args := []string{"rollback", "--stop", s.name}
		if n := len(s.states); n > 0 && w.rand.IntN(4) > 0 {
			args = append(args, s.states[w.rand.IntN(n)])
		}
		w.snapfs(ws, args...)
	})
}

func (w *worker) removes(ws *workspace) {
	if s := ws.any(w.rand); s != nil {
		if _, ok := w.snapfs(ws, "rm", ws.nameOf(s)); ok {
			ws.remove(s)
		}
	}
}

func (w *worker) renames(ws *workspace) {
	w.withSandbox(ws, func(s *sandbox) {
		name := w.name("r")
		_, ok := w.snapfs(ws, "rename", s.name, name)
		if !ok { // a killed one may have done it
			_, ok = w.snapfs(ws, "show", name)
		}
		if ok {
			ws.rename(s, name)
		}
	})
}

func (w *worker) looks(ws *workspace) {
	what := []string{"diff", "plan", "show", "status", "ls", "gc", "doctor", "drift"}[w.rand.IntN(8)]
	args := []string{what}
	if s := ws.any(w.rand); s != nil && what != "gc" && what != "ls" && what != "status" {
		args = append(args, ws.nameOf(s))
	}
	w.snapfs(ws, args...)
}
