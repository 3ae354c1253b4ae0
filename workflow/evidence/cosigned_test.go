package evidence

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
	"github.com/snapfs/snapfs/workflow/evidence/cosign"
	"github.com/snapfs/snapfs/workflow/evidence/statement"
	"golang.org/x/mod/sumdb/tlog"
)

// realWitness starts a witness of transparency-dev that knows the log of the sandbox s1, and returns its URL and key.
// Its module is not one of snapfs's: the program in testdata is built for the test.
func realWitness(t *testing.T, s *Store) (string, statement.Witness) {
	t.Helper()
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(treetest.Dir(t), "witness")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join("cosign", "testdata", "witness")
	if out, err := build.CombinedOutput(); err != nil {
		treetest.SkipUnreachable(t, "the Go module github.com/transparency-dev/witness", string(out))
	}
	cmd := exec.Command(program, statement.LogVerifier("s1", key.Public()))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		cmd.Stderr = os.Stderr
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, text, _ := strings.Cut(strings.TrimSpace(line), " ")
	w, err := statement.ParseWitness(text)
	if err != nil {
		t.Fatal(err)
	}
	return address, w
}

// post asks a witness as snapfs-serve does.
func post(t *testing.T, address string, old int64, proof tlog.TreeProof, checkpoint []byte) ([]string, int64, error) {
	t.Helper()
	q, err := cosign.RequestOf(address, old, proof, checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Post(q.URL, "text/plain", strings.NewReader(q.Body))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return cosign.Answer{Status: response.StatusCode, Body: string(body)}.Lines(address)
}

// TestARealWitnessCosignsTheLog has a witness cosign the log twice, before and after records were removed, and a host
// that has forgotten the first cosignature ask again. It refuses a log that was written again.
func TestARealWitnessCosignsTheLog(t *testing.T) {
	if !treetest.Long(t) {
		return // the build of the witness takes long
	}
	s := trueLog(t, 350)
	l := s.Log("s1")
	inFiles(t, l)
	address, w := realWitness(t, s)
	ask := func(old int64, proof tlog.TreeProof, checkpoint []byte) ([]string, int64, error) {
		return post(t, address, old, proof, checkpoint)
	}
	c, err := s.Cosign("s1", w, ask)
	if err != nil || c.Records != 350 {
		t.Fatalf("%+v, %v", c, err)
	}
	for range 5 {
		if err := s.After(events.Event{Type: events.NetworkRefused, SandboxID: "s1"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(l.Dir(), cosignedName)); err != nil { // the witness says its size
		t.Fatal(err)
	}
	if c, err = s.Cosign("s1", w, ask); err != nil || c.Records != 355 {
		t.Fatalf("again: %+v, %v", c, err)
	}
	if err := s.end(s.Log("s1")); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Cosign("s1", w, ask); err != nil {
		t.Fatal(err)
	}
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Export("s1")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		by   statement.Witness
		want string
	}{"the witness": {w, "yes"}, "another": {statement.NewWitness(key.Public()), "no"}} {
		report := bundle.Verify(r.Text, bundle.Options{Key: key.Public(), Witnesses: []statement.Witness{c.by}})
		if v := report.Verdicts[1]; v.Result != c.want || report.Verdicts[0].Result != "yes" {
			t.Errorf("%s: %+v", name, report.Verdicts)
		}
	}
	rewritten := trueLog(t, 360)
	other := rewritten.Log("s1")
	lines, _, err := other.Lines()
	if err != nil || len(lines) != 360 {
		t.Fatal(err)
	}
	tree, err := audit.TreeOf(lines)
	if err != nil {
		t.Fatal(err)
	}
	root, err := tree.Root(360)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := key.SignCheckpoint(statement.Checkpoint{Sandbox: "s1", Size: 360, Root: root})
	if err != nil {
		t.Fatal(err)
	}
	proof, err := tlog.ProveTree(360, 356, tree)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := post(t, address, 356, proof, signed); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("a log that was written again: %v", err)
	}
	stranger := strings.Replace(string(signed), "evidence/s1", "evidence/s2", -1)
	if _, _, err := post(t, address, 0, nil, []byte(stranger)); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("a log that it does not know: %v", err)
	}
}

// TestAWitnessThatHasSeenMoreIsAnError and other answers of a witness that no log explains.
func TestAWitnessThatHasSeenMoreIsAnError(t *testing.T) {
	s := trueLog(t, 10)
	key, err := s.Key()
	if err != nil {
		t.Fatal(err)
	}
	w := statement.NewWitness(key.Public())
	if _, err := s.Cosign("s1", w, func(int64, tlog.TreeProof, []byte) ([]string, int64, error) {
		return nil, 11, errors.New("other size")
	}); !errors.Is(err, errs.ErrCorrupt) || !strings.Contains(err.Error(), "11 records of this log, and there are 10") {
		t.Errorf("it has seen more: %v", err)
	}
	if _, err := s.Cosign("s1", w, func(int64, tlog.TreeProof, []byte) ([]string, int64, error) {
		return []string{"— " + w.Name + " AAAA"}, -1, nil
	}); !errors.Is(err, errs.ErrCorrupt) {
		t.Errorf("a cosignature that is none: %v", err)
	}
	if all, err := cosignaturesOf(s.Log("s1")); err != nil || len(all) > 0 {
		t.Errorf("stored: %v, %v", all, err)
	}
}
