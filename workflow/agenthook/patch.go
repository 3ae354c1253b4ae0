package agenthook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// patch makes the paths of an apply_patch call those of the view: absolute ones of the real workspace, and relative
// ones if the session's directory is the real workspace.
func (h *Handler) patch(input map[string]json.RawMessage, ev *event, l *Lease) ([]byte, error) {
	key := "command"
	if _, ok := input[key]; !ok {
		key = "input"
	}
	var text string
	if err := json.Unmarshal(input[key], &text); err != nil {
		return nil, errors.Join(errBlock, fmt.Errorf("reading the patch: %w", err))
	}
	moved := movePatch(text, ev.Dir, l)
	if moved == text {
		return nil, nil
	}
	var err error
	if input[key], err = json.Marshal(moved); err != nil {
		return nil, errors.Join(errBlock, err)
	}
	return output{Decision: "allow", Reason: "it works on the snapfs sandbox " + l.Sandbox, Input: input}.encode(ev)
}

// movePatch replaces the paths in the head lines of a patch in the format of apply_patch.
func movePatch(text, dir string, l *Lease) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		for _, head := range []string{"*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "} {
			path, ok := strings.CutPrefix(line, head)
			if !ok {
				continue
			}
			name := strings.TrimRight(path, "\r\n")
			full := name
			if !filepath.IsAbs(full) {
				full = filepath.Join(dir, full)
			}
			if to := l.inView(full); to != filepath.Clean(full) {
				lines[i] = head + to + path[len(name):]
			}
		}
	}
	return strings.Join(lines, "")
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}
