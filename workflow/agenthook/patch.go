package agenthook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
)

// patch replaces the paths in a coding agent's call of the tool apply_patch by those of the view, the host
// directory that shows the sandbox's files: absolute paths of the real workspace, and relative ones if the
// session's directory is the real workspace. It allows a call whose paths all lie in the view, blocks one
// that also has a path outside, and leaves others to the agent.
func (h *Handler) patch(input map[string]json.RawMessage, ev *event, l *Lease) ([]byte, error) {
	key := "command"
	if _, ok := input[key]; !ok {
		key = "input"
	}
	var text string
	if err := json.Unmarshal(input[key], &text); err != nil {
		return nil, errors.Join(errBlock, fmt.Errorf("reading the patch: %w", err))
	}
	m := movePatch(text, ev.Dir, l)
	switch {
	case len(m.outside) > 0 && m.inside:
		return nil, errors.Join(errBlock, fmt.Errorf("the patch changes files of the sandbox %s and, outside of it, %s: make two patches",
			l.Sandbox, pathlist.Printable(m.outside[0])))
	case !m.inside:
		return nil, nil
	}
	o := output{Decision: "allow", Reason: "it works on the snapfs sandbox " + l.Sandbox}
	if m.text != text {
		var err error
		if input[key], err = json.Marshal(m.text); err != nil {
			return nil, errors.Join(errBlock, err)
		}
		o.Input = input
	}
	return o.encode(ev)
}

// A moved is an agent's patch after its paths in the real workspace were replaced by those in the agent's
// view, the host directory that shows the sandbox's files.
type moved struct {
	text    string
	inside  bool     // it has a path in the view
	outside []string // its other paths
}

// movePatch replaces the paths of the real workspace in text, a patch in the format of apply_patch, by those
// of the view, the host directory that shows the files of the sandbox l. Relative paths start at dir.
func movePatch(text, dir string, l *Lease) moved {
	var m moved
	lines := strings.SplitAfter(text, "\n")
	update := false // a line that begins with a space is a part of the file
	for i, line := range lines {
		head, name, ok := patchHead(line, update)
		if !ok {
			continue
		}
		if head != patchMove {
			update = head == patchUpdate
		}
		full := name
		if !filepath.IsAbs(full) {
			full = filepath.Join(dir, full)
		}
		to := l.inView(full)
		if !hostfs.Within(to, l.View) {
			m.outside = append(m.outside, to)
			continue
		}
		m.inside = true
		if to != filepath.Clean(full) {
			lines[i] = head + to + line[len(strings.TrimRight(line, "\r\n")):]
		}
	}
	m.text = strings.Join(lines, "")
	return m
}

const patchUpdate, patchMove = "*** Update File: ", "*** Move to: "

// patchHead parses a line of a patch that names a file, such as "*** Add File: NAME", into head, the part
// before the name, and the name; ok is false for another line. Programs that apply patches ignore blanks
// around the line. But if update is set, the line is in the part of a patch that updates a file, where a
// blank begins a line of that file.
func patchHead(line string, update bool) (head, name string, ok bool) {
	if update && !strings.HasPrefix(line, "***") {
		return "", "", false
	}
	for _, head := range []string{"*** Add File: ", patchUpdate, "*** Delete File: ", patchMove} {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), strings.TrimSpace(head)); ok {
			return head, strings.TrimSpace(name), true
		}
	}
	return "", "", false
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
