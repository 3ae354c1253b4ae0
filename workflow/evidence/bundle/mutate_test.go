package bundle

import (
	"bytes"
	"crypto/ed25519"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
)

// mutate returns a changed bundle, and the way in which it was changed. other is a bundle of the
// same host.
func mutate(seed uint64, text, other []byte) ([]byte, string) {
	r := rand.New(rand.NewPCG(seed, 25))
	lines := bytes.SplitAfter(slices.Clone(text), []byte("\n"))
	lines = lines[:len(lines)-1]
	theirs := bytes.SplitAfter(other, []byte("\n"))
	i, j := r.IntN(len(lines)), r.IntN(len(lines))
	switch seed % 8 {
	case 0, 1, 2:
		changed := slices.Clone(text)
		changed[r.IntN(len(changed))] ^= 1 << r.IntN(8)
		return changed, "a bit flipped"
	case 3:
		return bytes.Join(slices.Delete(lines, i, i+1), nil), "a line dropped"
	case 4:
		lines[i], lines[j] = lines[j], lines[i]
		return bytes.Join(lines, nil), "two lines exchanged"
	case 5:
		return text[:r.IntN(len(text))], "cut off"
	case 6:
		lines[i] = theirs[i]
		return bytes.Join(lines, nil), "a line of another session"
	}
	return bytes.Join(slices.Insert(lines, i, lines[j]), nil), "a line doubled"
}

// verifyInPython returns the verdicts of the Python verifier, a line for each file; none where
// there is no Python.
func verifyInPython(t *testing.T, key ed25519.PublicKey, paths []string) []string {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Log("no python3: the second verifier did not run")
		return nil
	}
	public := filepath.Join(treetest.Dir(t), "host.pub")
	if err := os.WriteFile(public, statement.PublicPEM(key), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "../../../examples/verify_evidence.py", "--key", public, "-")
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\n") + "\n")
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output() // its status is 1 where a verdict is no
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(paths) {
		t.Fatalf("%d answers for %d files: %v\n%s", len(lines), len(paths), err, complaint.String())
	}
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, paths[i]+" ")
	}
	return lines
}
