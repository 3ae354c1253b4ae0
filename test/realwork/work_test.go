package realwork

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

//go:embed testdata/*.sh
var scripts embed.FS

// A work is something people do. Its script is testdata/NAME.sh, which ends
// with the line "works" where it did.
type work struct {
	name string
	// needs are programs it is about.
	needs []string
	// online works fetch from a registry: they get the host's network.
	online bool
	// script is the name of the script, if it is not that of the work.
	script string
	// profile is a built-in profile, whose network an online work has in place of the host's.
	profile string
	// heavy works use the most processor time: only make test-long does them.
	heavy bool
	// once is set for a work that make test does only as the ordinary user.
	once  bool
	flags []string
	// outside prepares the real workspace.
	outside string
	// changes are ends of paths that the report must name.
	changes []string
	// after looks at the real machine once more.
	after func(b *bench)
}

// A bench is where a work is done: a workspace and a home directory of its own,
// and a state directory.
type bench struct {
	t                       *testing.T
	dir, space, home, state string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := treetest.Dir(t)
	b := &bench{t: t, dir: dir, space: dir + "/work", home: dir + "/home", state: dir + "/state"}
	for _, d := range []string{b.space, b.home} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(b.clean)
	return b
}

// clean empties the state directory before the bench goes: a collection that a
// command left in the background may still write to it.
func (b *bench) clean() {
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		out, status := b.snapfs("gc")
		err := os.RemoveAll(b.state)
		if status == 0 && err == nil {
			return
		}
		if time.Since(start) > 30*time.Second {
			b.t.Errorf("gc: status %d: %s\n%v", status, out, err)
			return
		}
	}
}

// command is a program with the environment of the test's caller.
func (b *bench) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // clean-up runs commands too
	b.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = b.space
	cmd.Env = append(os.Environ(), "SNAPFS_HOME="+b.state, "BENCH="+b.dir, "BUILT="+treetest.Built(), "LC_ALL=C.UTF-8",
		"GIT_AUTHOR_NAME=realwork", "GIT_AUTHOR_EMAIL=realwork@example.org",
		"GIT_COMMITTER_NAME=realwork", "GIT_COMMITTER_EMAIL=realwork@example.org")
	return cmd
}

// outside runs a script on the real machine, in the workspace.
func (b *bench) outside(script string) string {
	b.t.Helper()
	out, err := b.command("sh", "-euc", script).CombinedOutput()
	if err != nil {
		b.t.Fatalf("outside: %v\n%s", err, out)
	}
	return string(out)
}

// snapfs runs the program and answers with its output and status.
func (b *bench) snapfs(args ...string) (output string, status int) {
	b.t.Helper()
	var out bytes.Buffer
	cmd := b.command(program(), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// guard stops a script that runs on the real machine by mistake: some would
// hurt it. Beneath it is what a script says where something must not succeed.
const guard = `[ "$(readlink /proc/self/ns/mnt)" != "$1" ] && [ "$(stat -c %d /)" != "$2" ] || { echo not in a sandbox; exit 99; }
refused() { if "$@"; then echo "not refused: $*"; exit 98; fi; }
`

// inside runs a script in a sandbox of the workspace and answers with its
// output and the paths and git refs that the report says it changed.
func (b *bench) inside(script string, flags ...string) (output string, status int, changed []string) {
	b.t.Helper()
	report := filepath.Join(b.dir, "report.json")
	real := strings.Fields(b.outside(`readlink /proc/self/ns/mnt; stat -c %d /`))
	args := slices.Concat([]string{"run", "-q", "--discard", "--report", report, "-C", b.space, "--env", "BENCH", "--env", "BUILT"}, flags, []string{"--", "sh", "-euc", guard + script, "sh"}, real)
	output, status = b.snapfs(args...)
	data, err := os.ReadFile(report)
	if err != nil {
		b.t.Fatalf("%v\n%s", err, output)
	}
	var r struct {
		Parts []struct {
			Root    string
			Changes []struct{ Path string }
		}
		Git []struct {
			Refs []struct{ Ref string }
		}
	}
	if err := json.Unmarshal(data, &r); err != nil {
		b.t.Fatalf("the report: %v\n%s", err, output)
	}
	for _, part := range r.Parts {
		for _, c := range part.Changes {
			changed = append(changed, filepath.Join(part.Root, c.Path))
		}
	}
	for _, repository := range r.Git {
		for _, moved := range repository.Refs {
			changed = append(changed, moved.Ref)
		}
	}
	return output, status, changed
}

// do does a work, and proves that it left the bench as it was.
func do(t *testing.T, w work) {
	treetest.NeedProgram(t, w.needs...)
	b := newBench(t)
	b.outside(w.outside)
	flags := w.flags
	if w.profile != "" {
		treetest.NeedDevice(t, "/dev/net/tun")
		flags = append(flags, "--profile", w.profile)
	} else if w.online {
		flags = append(flags, "--net", "host")
	}
	script, err := scripts.ReadFile("testdata/" + cmp.Or(w.script, w.name) + ".sh")
	if err != nil {
		t.Fatal(err)
	}
	before := whole(t, b.space, b.home)
	out, status, changed := b.inside(string(script), flags...)
	for try := 1; w.online && try < 3 && status != 0 && timedOut(out); try++ {
		t.Logf("once more, for the registry did not answer:\n%s", out)
		out, status, changed = b.inside(string(script), flags...)
	}
	if status != 0 || !strings.Contains("\n"+out, "\nworks\n") { // notices about hidden files may follow
		t.Errorf("status %d, and it said:\n%s", status, out)
	}
	for _, want := range w.changes {
		if !names(changed, want) {
			t.Errorf("the report of %d changes does not name %s", len(changed), want)
		}
	}
	before.equal(t, whole(t, b.space, b.home))
	if w.after != nil {
		w.after(b)
	}
	b.empty()
}

// names reports whether one of the paths ends like this.
func names(changed []string, end string) bool {
	return slices.ContainsFunc(changed, func(path string) bool { return strings.HasSuffix(path, end) })
}

// timedOut tells a registry that is slow from a client that does not work.
func timedOut(out string) bool {
	return slices.ContainsFunc([]string{"timed out", "ETIMEDOUT", "ECONNRESET", "Temporary failure", "EAI_AGAIN", "Could not connect", "502 ", "503 "},
		func(s string) bool { return strings.Contains(out, s) })
}

// empty checks that no sandbox is left.
func (b *bench) empty() {
	b.t.Helper()
	if out, status := b.snapfs("ls", "-q"); out != "" || status != 0 {
		b.t.Errorf("ls: status %d: %s", status, out)
	}
}
