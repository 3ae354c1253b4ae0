package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/workflow/pipeline"
)

// A line is the example, set up in a directory of its own, with a sandbox "fix"
// that changes it.
type line struct {
	t   *testing.T
	dir string // of the workspace
	env []string
}

// places are the stages that have a directory.
func places() []string { return []string{"dev", "test", "staging", "production"} }

// stages are all of them, in order.
func stages() []string { return append([]string{"sandbox"}, places()...) }

// faults make the example's check fail, or stand still, where a test says so: in
// a file that every sandbox sees, as a part of the real machine.
const faults = `
case " $(cat FAULTS) " in
*" fail:$SNAPFS_STAGE.$SNAPFS_WHEN "*) echo "told to fail"; exit 1 ;;
*" hang:$SNAPFS_STAGE.$SNAPFS_WHEN "*) echo up; exec sleep 1000 ;;
esac
`

func newLine(t *testing.T) *line {
	t.Helper()
	root := treetest.Dir(t)
	treetest.Leaks(t, root)
	l := &line{t: t, dir: filepath.Join(root, "project")}
	l.env = append(os.Environ(), "SNAPFS_HOME="+filepath.Join(root, "state"), "PATH="+treetest.Built()+":"+os.Getenv("PATH"))
	example := filepath.Join(treetest.Built(), "example")
	check, err := os.ReadFile(filepath.Join(example, "check"))
	check = append(check, strings.ReplaceAll(faults, "FAULTS", l.faultsFile())...)
	err = errors.Join(err, os.Mkdir(l.dir, 0o755), os.CopyFS(filepath.Join(l.dir, "app"), os.DirFS(filepath.Join(example, "app"))))
	for _, name := range []string{"snapfs.toml", "README.md"} {
		data, rerr := os.ReadFile(filepath.Join(example, name))
		err = errors.Join(err, rerr, os.WriteFile(filepath.Join(l.dir, name), data, 0o644))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(l.dir, "check"), check, 0o755), os.WriteFile(l.faultsFile(), nil, 0o644))
	for i, stage := range places() {
		app := filepath.Join(l.place(stage), "app")
		err = errors.Join(err, os.MkdirAll(app, 0o755),
			os.WriteFile(filepath.Join(l.place(stage), "check"), check, 0o755),
			os.WriteFile(filepath.Join(app, "server.conf"), []byte(conf(i, false)), 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // what is younger than the base counts as changed since
	l.snapfs("profile", "trust", "snapfs.toml").want(0)
	l.snapfs("new", "fix").want(0)
	l.snapfs("exec", "fix", "--", "sh", "-c", "sed -i 's/^workers = 4/workers = 8/' app/server.conf; echo more > app/extra.conf").want(0)
	l.snapfs("stop", "fix").want(0)
	t.Cleanup(func() { l.snapfs("rm", "fix") })
	return l
}

func (l *line) place(stage string) string {
	return filepath.Join(filepath.Dir(l.dir), "places", stage)
}

func (l *line) faultsFile() string { return filepath.Join(filepath.Dir(l.dir), "faults") }

// inject says where the check is to fail or to stand still.
func (l *line) inject(what string) {
	l.t.Helper()
	if err := os.WriteFile(l.faultsFile(), []byte(what), 0o644); err != nil {
		l.t.Fatal(err)
	}
}

// conf is the configuration of a place: its port is its own, and the lines between
// keep the two changes apart.
func conf(i int, promoted bool) string {
	workers := 4
	if promoted {
		workers = 8
	}
	return fmt.Sprintf("port = %d\n\n# How many requests are served at once.\nworkers = %d\n", 9001+i, workers)
}

// stand checks that the first n stages are promoted, and the others untouched.
func (l *line) stand(n int) {
	l.t.Helper()
	for i, stage := range places() {
		promoted := i+1 < n
		got, err := os.ReadFile(filepath.Join(l.place(stage), "app/server.conf"))
		if want := conf(i, promoted); err != nil || string(got) != want {
			l.t.Errorf("%s, promoted %v: %q, want %q, %v", stage, promoted, got, want, err)
		}
		if _, err := os.Lstat(filepath.Join(l.place(stage), "app/extra.conf")); (err == nil) != promoted {
			l.t.Errorf("%s, promoted %v: extra.conf: %v", stage, promoted, err)
		}
		left, err := filepath.Glob(filepath.Join(l.place(stage), ".snapfs-*"))
		if len(left) > 0 && !promoted || err != nil {
			l.t.Errorf("%s: left: %v, %v", stage, left, err)
		}
	}
}

// outcome is how a command ended.
type outcome struct {
	t      *testing.T
	args   []string
	status int
	stdout string
	all    string
}

func (l *line) command(args ...string) *exec.Cmd {
	cmd := exec.Command(treetest.Program(), args...)
	cmd.Dir, cmd.Env = l.dir, l.env
	return cmd
}

func (l *line) snapfs(args ...string) outcome {
	l.t.Helper()
	cmd := l.command(args...)
	var out, all strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &all
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatal(err)
	}
	return outcome{l.t, args, cmd.ProcessState.ExitCode(), out.String(), out.String() + all.String()}
}

func (o outcome) want(status int) outcome {
	o.t.Helper()
	if o.status != status {
		o.t.Fatalf("%q: status %d, want %d\n%s", o.args, o.status, status, o.all)
	}
	return o
}

func (o outcome) says(texts ...string) outcome {
	o.t.Helper()
	for _, text := range texts {
		if !strings.Contains(o.all, text) {
			o.t.Errorf("%q does not say %q:\n%s", o.args, text, o.all)
		}
	}
	return o
}

// history is what `snapfs log --promotions` tells of stages, the oldest first.
func (l *line) history() (all []pipeline.HistoryEntry) {
	l.t.Helper()
	o := l.snapfs("log", "--promotions", "--json").want(0)
	if err := json.Unmarshal([]byte(o.stdout), &all); err != nil {
		l.t.Fatal(err)
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// results are those of the stages, as STAGE=RESULT.
func (l *line) results() string {
	var all []string
	for _, h := range l.history() {
		text := h.Stage + "=" + string(h.Result)
		if h.Interrupted {
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

// killedAt starts a promotion, and kills it with SIGKILL once the check of a stage
// stands still.
func (l *line) killedAt(where string, args ...string) {
	l.t.Helper()
	l.inject("hang:" + where)
	cmd := l.command(args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	logs := filepath.Join(filepath.Dir(l.dir), "state/pipelines/*/"+where+".1.log")
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if standsStill(logs) {
			break
		}
		if time.Since(began) > 30*time.Second {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			l.t.Fatalf("%s was not reached:\n%s", where, out.String())
		}
	}
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	l.inject("")
}

// standsStill reports whether one of these logs ends with the word of a check that
// stands still: of those that went on since, the log was begun again.
func standsStill(logs string) bool {
	found, _ := filepath.Glob(logs)
	for _, path := range found {
		if text, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(text), "up\n") {
			return true
		}
	}
	return false
}
