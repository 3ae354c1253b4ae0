//go:build linux

package agents

import (
	"bufio"
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

var (
	//go:embed testdata/e2bsession.py
	e2bPython string
	//go:embed testdata/e2bsession.mjs
	e2bJavaScript string
)

// The versions of E2B's clients.
const (
	e2bPyPI = "e2b==2.63.0"
	e2bNPM  = "e2b@2.51.0"
)

// serveE2B starts the server of E2B's wire, and returns the environment of its clients.
func (d *desk) serveE2B() []string {
	d.t.Helper()
	key := filepath.Join(treetest.Dir(d.t), "key")
	if err := os.WriteFile(key, []byte("the-key\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
	cmd := d.command("e2b", "--listen", "127.0.0.1:0", "--e2b-key", key, "-C", d.work)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			d.t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			d.t.Errorf("the server's end: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		d.t.Fatal(err)
	}
	return append(strings.Fields(line), "E2B_API_KEY=the-key", "WORK="+d.work)
}

// TestClientsOfE2BRunAWholeSession: the clients for Python and for JavaScript, unchanged as their registries have them.
// Only make test-long runs it: it fetches 60 MB.
func TestClientsOfE2BRunAWholeSession(t *testing.T) {
	treetest.OncePerRun(t)
	if treetest.Budget(t, 0, 1) == 0 {
		return
	}
	t.Run("python", func(t *testing.T) {
		d := newDesk(t)
		dir := treetest.Dir(t)
		installed(t, e2bPyPI, "python3", "-m", "venv", dir)
		installed(t, e2bPyPI, dir+"/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", e2bPyPI)
		out, err := d.run(append(d.serveE2B(), "LEAVE=1"), dir+"/bin/python", "-c", e2bPython)
		if err != nil || !strings.HasSuffix(out, "done\n") {
			t.Fatalf("%v\n%s", err, out)
		}
		// The sandbox that the client has left is the person's to promote.
		_, id, _ := strings.Cut(out, "\nid ")
		id, _, _ = strings.Cut(id, "\n")
		if _, err := d.snapfs("promote", "--only", "add.sh", id); err != nil || d.real("add.sh") != "echo $(($1 + $2))\n" {
			t.Errorf("promote %s: %v; the real file is %q", id, err, d.real("add.sh"))
		}
	})
	t.Run("javascript", func(t *testing.T) {
		d := newDesk(t)
		treetest.NeedProgram(t, "node")
		modules := filepath.Dir(npm(t, e2bNPM))
		script := filepath.Join(filepath.Dir(modules), "session.mjs") // where its import finds the package
		if err := os.WriteFile(script, []byte(e2bJavaScript), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := d.run(d.serveE2B(), "node", script)
		if err != nil || !strings.HasSuffix(out, "done\n") {
			t.Fatalf("%v\n%s", err, out)
		}
	})
}
