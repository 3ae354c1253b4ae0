package job

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/errs"
)

// A bench is a Store without an engine, whose clock the test moves. It submits jobs and begins none.
type bench struct {
	*Store
	t         *testing.T
	clock     time.Time
	workspace string
	rested    map[int]time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	state := t.TempDir()
	b := &bench{t: t, clock: time.Now().Add(time.Hour), workspace: t.TempDir(), rested: map[int]time.Time{}}
	b.Store = &Store{dir: filepath.Join(state, "jobs"), events: events.New(state, func(s string) { t.Log(s) }, nil), now: func() time.Time { return b.clock }}
	return b
}

func (b *bench) add(t Trigger) (*Trigger, string) {
	b.t.Helper()
	t.Spec = Spec{Workspace: b.workspace, Dir: b.workspace, Command: []string{"true"}, Then: Hold, Class: Normal}
	made, secret, err := b.AddTrigger(context.Background(), t)
	if err != nil {
		b.t.Fatal(err)
	}
	return made, secret
}

// look does what a worker does for triggers after a time, and returns the number of stored jobs.
func (b *bench) look(after time.Duration) int {
	b.t.Helper()
	b.clock = b.clock.Add(after)
	if err := b.submitDue(context.Background(), b.rested); err != nil {
		b.t.Fatal(err)
	}
	jobs, err := b.List()
	if err != nil {
		b.t.Fatal(err)
	}
	return len(jobs)
}

// end ends a job.
func (b *bench) end(number int, state State) {
	b.t.Helper()
	l, err := b.lock("ending", number)
	if err != nil {
		b.t.Fatal(err)
	}
	defer l.unlock()
	if err := l.become(state, ""); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) want(what string, got, want int) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %d jobs, want %d", what, got, want)
	}
}

// TestAScheduleSubmitsOneJobATime: also after a long time without a worker, and not beside one that has not ended.
func TestAScheduleSubmitsOneJobATime(t *testing.T) {
	b := newBench(t)
	b.add(Trigger{Every: time.Hour, Within: time.Minute})
	b.want("at once", b.look(0), 0)
	b.want("before", b.look(59*time.Minute), 0)
	b.want("due", b.look(time.Minute), 1)
	b.want("again", b.look(time.Second), 1)
	b.want("while it is queued", b.look(3*time.Hour), 1)
	b.end(1, Waiting)
	b.want("while it waits for a person", b.look(0), 2)
	b.want("once for all that passed", b.look(time.Second), 2)
	b.end(2, Done)
	b.want("before the next", b.look(58*time.Minute), 2)
	b.want("at the next", b.look(2*time.Minute), 3)
	j, err := b.Get(3)
	if err != nil || j.Trigger != 1 || !j.Deadline.Equal(b.clock.Add(time.Minute).UTC()) {
		t.Errorf("%+v %v", j, err)
	}
}

// TestAChangeOfFilesSubmitsAJob: of those of the pattern, once they are quiet.
func TestAChangeOfFilesSubmitsAJob(t *testing.T) {
	b := newBench(t)
	write := func(name, text string) {
		path := filepath.Join(b.workspace, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("src/a.proto", "a")
	b.add(Trigger{Changed: "src/**/*.proto"})
	b.want("at first", b.look(time.Hour), 0)
	write("src/a.go", "a")
	write("other.proto", "a")
	b.want("other files", b.look(time.Hour), 0)
	write("src/deep/b.proto", "b")
	clock := b.clock
	b.clock = time.Now()
	b.want("at once", b.look(0), 0)
	b.clock = clock
	b.want("quiet", b.look(time.Hour), 1)
	write("src/a.proto", "another")
	b.want("while its job is queued", b.look(time.Hour), 1)
	b.end(1, Done)
	b.want("after it", b.look(time.Hour), 2)
	b.end(2, Done)
	b.want("nothing new", b.look(time.Hour), 2)
	if err := os.Remove(filepath.Join(b.workspace, "src/a.proto")); err != nil {
		t.Fatal(err)
	}
	b.want("a removal", b.look(time.Hour), 3)
}

// TestASearchStaysInTheWorkspace: no symbolic link on the way of a pattern leads out of it, a link itself is watched, and a
// search ends with its context and with too many files.
func TestASearchStaysInTheWorkspace(t *testing.T) {
	ws, outside := t.TempDir(), t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(outside, "sub"), 0o755), os.WriteFile(filepath.Join(outside, "sub/a"), nil, 0o644),
		os.Mkdir(filepath.Join(ws, "dir"), 0o755), os.Symlink(outside, filepath.Join(ws, "link")), os.Symlink(outside, filepath.Join(ws, "dir/link")))
	if err != nil {
		t.Fatal(err)
	}
	state := func(pattern string) string {
		t.Helper()
		s, _, err := stateOf(t.Context(), ws, pattern, 100)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	none := state("none")
	for _, pattern := range []string{"link/sub/*", "link/sub", "link/sub/a", "link/*/a", "dir/link/sub/a"} {
		if state(pattern) != none {
			t.Errorf("%s: the search leaves the workspace", pattern)
		}
	}
	if state("link") == none || state("dir/link") == none {
		t.Error("a link of the workspace is not watched")
	}
	if _, _, err := stateOf(t.Context(), ws, "*", 3); !errors.Is(err, errs.ErrInvalid) || !strings.Contains(err.Error(), ws) {
		t.Errorf("too many files: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := stateOf(ctx, ws, "*", 100); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the request: %v", err)
	}
}

// TestAnUnreadableTriggerIsNamedByItsNumber: a server sends the text to clients that may only read, so it has no path of
// the state directory. The same holds for a job.
func TestAnUnreadableTriggerIsNamedByItsNumber(t *testing.T) {
	b := newBench(t)
	b.add(Trigger{Every: time.Hour})
	b.want("due", b.look(time.Hour), 1)
	for _, path := range []string{b.triggerPath(1), filepath.Join(b.path(1), recordFile)} {
		unreadable := func() {
			t.Helper()
			_, errT := b.Triggers()
			_, errJ := b.List()
			if err := errors.Join(errT, errJ); err == nil || strings.Contains(err.Error(), b.dir) || !strings.Contains(err.Error(), ": 1: ") || len(errs.HintsOf(err)) == 0 {
				t.Errorf("%v", err)
			}
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		unreadable()
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
		unreadable()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAShownJobIsRedacted as its events are, and so is the file of a job that has ended, which has no values any more.
func TestAShownJobIsRedacted(t *testing.T) {
	s := Spec{Command: []string{"sh", "-c", "curl hunter2hunter2"}, Check: []string{"sh", "-c", "x hunter2hunter2"}}
	s.Policy.Env = []string{"KEY_TOKEN=hunter2hunter2"}
	for range 2 { // twice is no different
		if s = s.Shown(); strings.Contains(fmt.Sprint(s), "hunter2") || s.Command[0] != "sh" || len(s.Command) < 2 {
			t.Errorf("%+v", s)
		}
	}
}

// TestAKilledWorkerSubmitsNoJobTwice: between the job and the trigger's own file.
func TestAKilledWorkerSubmitsNoJobTwice(t *testing.T) {
	b := newBench(t)
	b.add(Trigger{Every: time.Hour})
	if err := os.WriteFile(filepath.Join(b.workspace, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	b.add(Trigger{Changed: "x"})
	if err := os.WriteFile(filepath.Join(b.workspace, "x"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := map[int][]byte{}
	for _, n := range []int{1, 2} {
		data, err := os.ReadFile(b.triggerPath(n))
		if err != nil {
			t.Fatal(err)
		}
		before[n] = data
	}
	b.want("due", b.look(time.Hour), 2)
	for n, data := range before { // as if the worker had been killed before it stored this
		if err := os.WriteFile(b.triggerPath(n), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.rested = map[int]time.Time{}
	b.want("the next worker", b.look(time.Second), 2)
	list, err := b.Triggers()
	if err != nil || list[0].Last == 0 || list[1].Last == 0 || !list[0].Next.After(b.clock) {
		t.Errorf("%+v %v", list, err)
	}
}

// sign returns the header of a request.
func sign(secret string, at time.Time, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}

// TestAWebhookTakesSignedRequestsOnce: by its secret, of now, each of them once.
func TestAWebhookTakesSignedRequestsOnce(t *testing.T) {
	b := newBench(t)
	_, secret := b.add(Trigger{Webhook: true})
	_, other := b.add(Trigger{Webhook: true})
	b.add(Trigger{Every: time.Hour})
	if secret == other || len(secret) < 50 {
		t.Errorf("secrets %q and %q", secret, other)
	}
	good := sign(secret, b.clock, "")
	ctx := context.Background()
	for what, q := range map[string]struct {
		number          int
		signature, body string
	}{
		"no signature":       {1, "", ""},
		"another secret":     {1, sign(other, b.clock, ""), ""},
		"another body":       {1, good, "{}"},
		"too old":            {1, sign(secret, b.clock.Add(-6*time.Minute), ""), ""},
		"of the future":      {1, sign(secret, b.clock.Add(6*time.Minute), ""), ""},
		"another time":       {1, strings.Replace(good, "t=", "t=1", 1), ""},
		"a part":             {1, good[:len(good)-2], ""},
		"no time":            {1, "v1=" + good[strings.Index(good, "v1=")+3:], ""},
		"without t":          {1, good[2:], ""},
		"another trigger":    {2, good, ""},
		"no webhook":         {3, sign("", b.clock, ""), ""},
		"no webhook, none":   {3, sign("none", b.clock, ""), ""},
		"no trigger":         {9, sign("none", b.clock, ""), ""},
		"no trigger, signed": {9, good, ""},
	} {
		if j, err := b.Hook(ctx, q.number, q.signature, []byte(q.body)); !errors.Is(err, errs.ErrDenied) || j != nil {
			t.Errorf("%s: %v %v", what, j, err)
		}
	}
	b.want("refused", b.look(0), 0)
	for range 3 { // a repetition is the same
		if j, err := b.Hook(ctx, 1, good, nil); err != nil || j.Number != 1 || j.Trigger != 1 {
			t.Errorf("%+v %v", j, err)
		}
	}
	data, err := os.ReadFile(b.triggerPath(1))
	if err != nil || !strings.Contains(string(data), secret) {
		t.Fatal(err)
	}
	if list, err := b.Triggers(); err != nil || strings.Contains(fmt.Sprintf("%+v", list), secret) {
		t.Errorf("the list has the secret: %v", err)
	}
	b.end(1, Done)
	if err := os.RemoveAll(b.path(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Hook(ctx, 1, good, nil); !errors.Is(err, errs.ErrExists) {
		t.Errorf("a repetition after its job was removed: %v", err)
	}
	if j, err := b.Hook(ctx, 1, sign(secret, b.clock.Add(time.Second), ""), nil); err != nil || j == nil {
		t.Errorf("the next: %v", err)
	}
	// It decides on its own jobs only.
	mine, err := b.Submit(Spec{Workspace: b.workspace, Command: []string{"true"}, Then: Hold, Class: Normal})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{fmt.Sprintf(`{"action": "approve", "job": %d}`, mine.Number), `{"action": "reject", "job": 99}`} {
		if _, err := b.Hook(ctx, 1, sign(secret, b.clock, body), []byte(body)); !errors.Is(err, errs.ErrDenied) {
			t.Errorf("%s: %v", body, err)
		}
	}
	for _, body := range []string{"x", `{"action": "remove"}`} {
		if _, err := b.Hook(ctx, 1, sign(secret, b.clock, body), []byte(body)); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// TestATriggerHasOneCondition: and one that can be met.
func TestATriggerHasOneCondition(t *testing.T) {
	b := newBench(t)
	spec := Spec{Workspace: b.workspace, Command: []string{"true"}, Then: Hold, Class: Normal}
	for _, bad := range []Trigger{
		{Spec: spec},
		{Spec: spec, Every: time.Hour, Webhook: true},
		{Spec: spec, Every: time.Millisecond},
		{Spec: spec, Every: -time.Hour},
		{Spec: spec, Changed: "/elsewhere/x"},
		{Spec: spec, Changed: "x", Every: time.Hour},
		{Every: time.Hour},
	} {
		if _, _, err := b.AddTrigger(context.Background(), bad); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	one, _ := b.add(Trigger{Every: time.Hour})
	b.want("due", b.look(time.Hour), 1)
	if err := b.RemoveTrigger(one.Number, nil); err != nil {
		t.Fatal(err)
	}
	if two, _ := b.add(Trigger{Webhook: true}); two.Number == one.Number {
		t.Error("a number that a job names is used again")
	}
	if err := b.RemoveTrigger(one.Number, nil); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("removed twice: %v", err)
	}
}
