package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/vfs"
)

// newLog returns the log of a new state directory whose files hold some bytes.
func newLog(t *testing.T, state string, size int64) *Log {
	t.Helper()
	l := New(state, func(text string) { t.Error(text) }, nil)
	l.bytes = size
	return l
}

// readAll returns the stored events after a number.
func readAll(t *testing.T, state string, after uint64) (all []Event) {
	t.Helper()
	if err := Read(state, after, func(e Event) error { all = append(all, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestEventsAreNumberedWithoutGaps(t *testing.T) {
	state := t.TempDir()
	var wg sync.WaitGroup
	for w := range 4 { // as four processes: each has files of its own
		wg.Go(func() {
			l := newLog(t, state, 2000)
			for i := range 50 {
				l.Append(Event{Type: CommandStarted, Subject: fmt.Sprintf("w%d", w), Data: Data{Command: []string{strconv.Itoa(i)}}})
			}
		})
	}
	seen := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		want, each := uint64(1), map[string]int{}
		seen <- Follow(ctx, state, 0, func(e Event) error {
			switch {
			case e.Type == EventsLost: // the files are small, and a reader may be slow
				want = e.Data.Last + 1
				return nil
			case e.Number() != want:
				return fmt.Errorf("event %d follows %d", e.Number(), want-1)
			}
			want++
			i, _ := strconv.Atoi(e.Data.Command[0])
			if i < each[e.Subject] {
				return fmt.Errorf("event %d of %s follows %d", i, e.Subject, each[e.Subject])
			}
			each[e.Subject] = i
			if want == 201 {
				cancel()
			}
			return nil
		})
	}()
	wg.Wait()
	if err := <-seen; err != nil {
		t.Error(err)
	}
	if newest, err := Newest(state); newest != 200 || err != nil {
		t.Errorf("the newest event is %d, %v; want 200", newest, err)
	}
}

func TestOldEventsAreRemovedAndTheReaderIsTold(t *testing.T) {
	state := t.TempDir()
	l := newLog(t, state, 1000)
	for range 100 {
		l.Append(Event{Type: SandboxCreated, Subject: "a"})
	}
	entries, err := os.ReadDir(filepath.Join(state, dirName))
	if err != nil || len(entries) > maxFiles {
		t.Fatalf("%d files remain, %v; want at most %d", len(entries), err, maxFiles)
	}
	all := readAll(t, state, 2)
	lost := all[0]
	if lost.Type != EventsLost || lost.Data.First != 3 || lost.Data.Last+1 != all[1].Number() {
		t.Errorf("the first event is %+v, the second has number %d", lost, all[1].Number())
	}
	if last := all[len(all)-1]; last.Number() != 100 {
		t.Errorf("the last event has number %d; want 100", last.Number())
	}
	if rest := readAll(t, state, lost.Number()); len(rest) != len(all)-1 {
		t.Errorf("%d events after the lost ones; want %d", len(rest), len(all)-1)
	}
}

// TestAKilledWriterLosesAtMostItsEvent cuts the stream at every byte of its last event.
func TestAKilledWriterLosesAtMostItsEvent(t *testing.T) {
	state := t.TempDir()
	newLog(t, state, maxFile).Append(Event{Type: SandboxCreated, Subject: "a"})
	path := fileOf(filepath.Join(state, dirName), 1)
	one, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newLog(t, state, maxFile).Append(Event{Type: SandboxRemoved, Subject: "a"})
	two, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := len(one); cut < len(two); cut++ {
		if err := os.WriteFile(path, two[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, state, 0); len(got) != 1 {
			t.Fatalf("cut at %d: %d events are read; want 1", cut, len(got))
		}
		newLog(t, state, maxFile).Append(Event{Type: SandboxRenamed, Subject: "a"})
		got := readAll(t, state, 0)
		if len(got) != 2 || got[1].Type != SandboxRenamed || got[1].Number() != 2 {
			t.Fatalf("cut at %d: then the events are %+v", cut, got)
		}
	}
}

func TestAReaderSeesTheEventThatReplacesAnIncompleteLine(t *testing.T) {
	state := t.TempDir()
	newLog(t, state, maxFile).Append(Event{Type: SandboxCreated, Subject: "a"})
	path := fileOf(filepath.Join(state, dirName), 1)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(`{"id":"2","sub`); err != nil {
		t.Fatal(err)
	}
	r := newReader(state, 0)
	defer r.close()
	var got []string
	note := func(e Event) error { got = append(got, e.Type); return nil }
	if err := r.drain(note); err != nil {
		t.Fatal(err)
	}
	newLog(t, state, maxFile).Append(Event{Type: SandboxRemoved, Subject: "a"})
	if err := r.drain(note); err != nil {
		t.Fatal(err)
	}
	if want := SandboxCreated + " " + SandboxRemoved; strings.Join(got, " ") != want {
		t.Errorf("the reader got %v; want %s", got, want)
	}
}

func TestYieldEndsARead(t *testing.T) {
	state := t.TempDir()
	l := newLog(t, state, maxFile)
	l.Append(Event{Type: SandboxCreated})
	l.Append(Event{Type: SandboxRemoved})
	stop := errors.New("stop")
	if err := Read(state, 0, func(Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Read returned %v", err)
	}
}

func TestAnUnreadableLineIsALostEvent(t *testing.T) {
	state := t.TempDir()
	if err := os.MkdirAll(filepath.Join(state, dirName), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fileOf(filepath.Join(state, dirName), 1), []byte("no event\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, state, 0); len(got) != 1 || got[0].Type != EventsLost || got[0].Data.First != 1 {
		t.Errorf("the events are %+v", got)
	}
	said := 0
	l := New(state, func(string) { said++ }, nil)
	l.Append(Event{Type: SandboxCreated})
	l.Append(Event{Type: SandboxCreated})
	if said != 1 {
		t.Errorf("%d notices; want 1", said)
	}
}

func TestALongCommandIsCut(t *testing.T) {
	long := Command(append([]string{strings.Repeat("x", 1000)}, make([]string, 100)...))
	if len(long) != maxArgs+1 || len(long[0]) > maxBytes+len("…") {
		t.Errorf("%d arguments, the first of %d bytes", len(long), len(long[0]))
	}
}

// TestEveryFieldIsWritten sets all fields of an event that are stored.
func TestEveryFieldIsWritten(t *testing.T) {
	status := 3
	want := Event{
		ID: "7", SpecVersion: "1.0", Source: "/state", Type: "t", Subject: "na\"me\n", SandboxID: "i", Time: time.Now().UTC(), ContentType: "application/json",
		Data: Data{
			Workspace: "/w", Backends: []string{"a", "b"}, Ephemeral: true, Origin: "o", Evidence: true, Held: []string{"a"}, Crossed: []string{"b", "c"}, Job: 5, Trigger: 6, Name: "n", Command: []string{"sh", "-c", "<&>\x00"}, Run: "r",
			Status: &status, Seconds: 0.25, CPUSeconds: 1e-7, MemoryBytes: 1 << 40, Limit: "l", Value: "v", Reason: "why", Host: "h", Port: 443,
			Promotion: "p", Plan: "f", Target: "/t", Changes: 9, Paths: []string{"/a"},
			First: 2, Last: 1 << 50,
		},
	}
	unset := 0
	for v := range fieldsOf(want.Data) {
		if v.IsZero() {
			unset++
		}
	}
	if unset != 3 { // Env, Check and Output, which are never written
		t.Errorf("%d fields of the data are not set here", unset)
	}
	var got Event
	if err := json.Unmarshal(encode(&want), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v\nwant %+v", got, want)
	}
	if n := numberOf(encode(&want)); n != 7 {
		t.Errorf("the number of the line is %d", n)
	}
}

func fieldsOf(v any) iter.Seq[reflect.Value] {
	return func(yield func(reflect.Value) bool) {
		r := reflect.ValueOf(v)
		for i := range r.NumField() {
			if !yield(r.Field(i)) {
				return
			}
		}
	}
}

// TestEventsAreCloudEvents checks the required attributes of CloudEvents 1.0 and their JSON types.
func TestEventsAreCloudEvents(t *testing.T) {
	state := t.TempDir()
	newLog(t, state, maxFile).Append(Event{Type: SandboxCreated, Subject: "a", SandboxID: "x"})
	line, err := os.ReadFile(fileOf(filepath.Join(state, dirName), 1))
	var got map[string]any
	if err == nil {
		err = json.Unmarshal(line, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"id", "source", "type", "time", "subject", "sandboxid"} {
		if text, ok := got[name].(string); !ok || text == "" {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	for name := range got {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" || len(name) > 20 {
			t.Errorf("%s is not the name of an attribute", name)
		}
	}
	if got["specversion"] != "1.0" || got["datacontenttype"] != "application/json" {
		t.Errorf("the event is %s", line)
	}
	if _, err := time.Parse(time.RFC3339, fmt.Sprint(got["time"])); err != nil {
		t.Error(err)
	}
}

// A process that was forked during an append has a copy of the locked descriptor, and holds up no other append.
// Cost: milliseconds.
func TestACopyOfTheDescriptorKeepsNoLock(t *testing.T) {
	for name, end := range map[string]func(l *Log){
		"append":       func(l *Log) { vfs.Unlock(l.file) },
		"another file": (*Log).leave,
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			l := newLog(t, state, maxFile)
			l.Append(Event{Type: SandboxCreated})
			if _, err := l.lock(); err != nil {
				t.Fatal(err)
			}
			forked, err := unix.Dup(int(l.file.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(forked)
			end(l)
			ended := make(chan struct{})
			go func() {
				newLog(t, state, maxFile).Append(Event{Type: SandboxRemoved})
				close(ended)
			}()
			select {
			case <-ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the file stayed locked")
			}
		})
	}
}

// A process that has waited for a file while others filled it and eight more makes no second file of its successor's
// name. Cost: milliseconds.
func TestALateWriterMakesNoOldFileAgain(t *testing.T) {
	state := t.TempDir()
	late, other := newLog(t, state, 1000), newLog(t, state, 1000)
	late.Append(Event{Type: SandboxCreated})
	if err := late.open(); err != nil {
		t.Fatal(err)
	}
	for len(readAll(t, state, 0)) > 0 && other.next < 100 {
		other.Append(Event{Type: SandboxCreated})
	}
	before, err := files(filepath.Join(state, dirName))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(vfs.Flock(late.file, unix.LOCK_EX), late.rotate(1000)); err != nil {
		t.Fatal(err)
	}
	vfs.Unlock(late.file)
	after, err := files(filepath.Join(state, dirName))
	if err != nil || !slices.Equal(before, after) {
		t.Errorf("files %v, before %v: %v", after, before, err)
	}
}

// A process that has found no file, and makes the first one when others have filled and removed it, appends to the
// newest one. Cost: milliseconds.
func TestALateFirstFileTakesNoEvent(t *testing.T) {
	state := t.TempDir()
	other := newLog(t, state, 1000)
	for range 100 {
		other.Append(Event{Type: SandboxCreated})
	}
	dir := filepath.Join(state, dirName)
	if err := os.WriteFile(fileOf(dir, 1), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	late := newLog(t, state, 1000)
	late.newest = 1
	late.Append(Event{Type: SandboxRemoved})
	if newest, err := Newest(state); newest != 101 || err != nil {
		t.Errorf("the newest event is %d, %v; want 101", newest, err)
	}
}
