package isolate

import (
	"context"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A screen collects what a terminal shows.
type screen struct {
	mu    sync.Mutex
	all   strings.Builder
	seen  int
	ended chan struct{}
}

// watch reads a terminal to its end.
func watch(pty io.Reader) *screen {
	s := &screen{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		buf := make([]byte, 4096)
		for {
			n, err := pty.Read(buf)
			s.mu.Lock()
			s.all.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return s
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// sees waits for a text after all texts that it has waited for before.
func (s *screen) sees(t *testing.T, text string) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(2 * time.Millisecond) {
		if i := strings.Index(s.text()[s.seen:], text); i >= 0 {
			s.seen += i + len(text)
			return
		}
	}
	t.Errorf("the screen does not show %q", text)
}

func TestCtrlCReachesTheForegroundProcess(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		c := Command{Args: []string{"bash", "--norc", "-i"}, Env: []string{"PATH=/usr/bin:/bin", "PS1=> "}, Dir: "/", TTY: &Size{Rows: 24, Cols: 80}}
		p, err := container.Exec(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		s := watch(p.PTY())
		const sleeps = `bash -c "echo u''p; exec sleep 1000"` + "\n" // up: it is in front
		for _, step := range []struct{ sees, keys string }{
			{"> ", sleeps},
			{"up\r\n", "\x03"},
			{"> ", "echo st$?\n"},
			{"st130", sleeps},
			{"up\r\n", "\x1a"},
			{"Stopped", "jobs\n"},
			{"Stopped", "kill -9 %1; while jobs %1 >/dev/null 2>&1; do :; done\n"},
			{"> ", "exit 8\n"},
		} {
			s.sees(t, step.sees)
			if _, err := io.WriteString(p.PTY(), step.keys); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		st, err := p.Wait(ctx)
		if err != nil {
			p.Signal(syscall.SIGKILL) //nolint:errcheck // the test is over
		}
		<-s.ended
		out := s.text()
		if st.Code != 8 || err != nil || !strings.Contains(out, "st130") || !strings.Contains(out, "Stopped") || strings.Contains(out, "no job control") {
			t.Errorf("%+v %v\n%s", st, err, out)
		}
	})
}
