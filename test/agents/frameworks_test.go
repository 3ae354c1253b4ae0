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
	//go:embed testdata/inspectsession.py
	inspectSession string
	//go:embed testdata/deepsession.py
	deepSession string
)

// serveSocket starts a server of the HTTP API on its unix socket, which it returns. The end of the test ends it.
func (d *desk) serveSocket() string {
	d.t.Helper()
	cmd := d.command("serve", "-C", d.work)
	out, err := cmd.StderrPipe()
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
		_ = cmd.Wait() // of the signal
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	_, socket, ok := strings.Cut(strings.TrimSpace(line), "serving at ")
	if err != nil || !ok {
		d.t.Fatalf("%q, %v", line, err)
	}
	return socket
}

// TestFrameworksWorkInSandboxes: inspect_ai and deepagents, unchanged as PyPI has them, by the providers in
// examples/frameworks. Only make test-long runs it: it fetches 150 MB.
func TestFrameworksWorkInSandboxes(t *testing.T) {
	treetest.OncePerRun(t)
	if !treetest.Long(t) {
		return
	}
	examples, err := filepath.Abs("../../examples/frameworks")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, packages, session string }{
		{"inspect_ai", "inspect-ai==0.3.285", inspectSession},
		{"deepagents", "deepagents==0.7.32", deepSession},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			python := pip(t, c.packages)
			env := []string{"SNAPFS_SOCKET=" + d.serveSocket(), "PYTHONPATH=" + examples, "PYTHONDONTWRITEBYTECODE=1", "TMPDIR=" + treetest.Dir(t)}
			out, err := d.run(env, python, "-c", c.session)
			if err != nil || !strings.HasSuffix(out, "done\n") {
				t.Fatalf("%v\n%s", err, out)
			}
			if text := d.real("add.sh"); text != "echo $(($1 - $2))\n" {
				t.Errorf("the real file is %q", text)
			}
			entries, err := os.ReadDir(d.work)
			if err != nil || len(entries) != 2 {
				t.Errorf("the workspace: %v, %v", entries, err)
			}
		})
	}
}
