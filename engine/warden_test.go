package engine_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
)

// A talk is a command in a sandbox that answers each line with the next number, and
// ends with status 7 at the end of its input.
type talk struct {
	supervise.Client
	b   *bench
	in  *os.File
	out *bufio.Reader
}

func (b *bench) talk(name string) *talk {
	b.t.Helper()
	in, typed, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	said, out, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	c := b.command("n=0; while read x; do n=$((n+1)); echo $n; done; exit 7")
	c.Stdin, c.Stdout = in, out
	p, err := b.Supervise.Exec(b.t.Context(), name, c)
	in.Close()
	out.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { typed.Close(); said.Close() })
	return &talk{p, b, typed, bufio.NewReader(said)}
}

func (k *talk) say() {
	k.b.t.Helper()
	if _, err := io.WriteString(k.in, "x\n"); err != nil {
		k.b.t.Fatal(err)
	}
}

func (k *talk) hears(want string) {
	k.b.t.Helper()
	if got, err := k.out.ReadString('\n'); got != want+"\n" || err != nil {
		k.b.t.Fatalf("it says %q, %v, want %q", got, err, want)
	}
}

// ends waits for its end, which no limit has brought.
func (k *talk) ends() {
	k.b.t.Helper()
	k.in.Close()
	st, err := k.Wait(k.b.t.Context())
	if err != nil || st.ExitCode() != 7 || k.Hit() != nil {
		k.b.t.Errorf("it ended with %v, %v, %v", st, err, k.Hit())
	}
	if err := k.Close(); err != nil {
		k.b.t.Error(err)
	}
}

func (b *bench) limit(name string, change func(l *engine.Limits)) {
	b.t.Helper()
	if _, err := b.Supervise.SetLimits(b.t.Context(), name, func(l *engine.Limits) error { change(l); return nil }); err != nil {
		b.t.Fatal(err)
	}
}

// untilPaused waits until the record says that a sandbox stands still for a limit.
func (b *bench) untilPaused(name, limit string) {
	b.t.Helper()
	for {
		info, err := b.Show(b.t.Context(), name)
		if err != nil {
			b.t.Fatal(err)
		}
		if info.Paused != nil && info.Paused.Limit == limit {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestWhatIsPausedGoesOnWhereItStood(t *testing.T) { asEach(t, pausedGoesOn) }

func pausedGoesOn(t *testing.T, b *bench) {
	b.setStage()
	k := b.talk("s")
	k.say()
	k.hears("1")
	b.limit("s", func(l *engine.Limits) { l.TTL = time.Millisecond })
	b.untilPaused("s", "ttl")
	k.say()
	if _, err := b.Supervise.Exec(t.Context(), "s", b.command("true")); !errors.Is(err, errs.ErrDenied) || !strings.Contains(err.Error(), "(ttl 1ms)") {
		t.Errorf("a command in it: %v", err)
	}
	if _, err := b.Snapshot(t.Context(), "s", "still"); err != nil { // which has nothing go on
		t.Error(err)
	}
	if got := len(b.changed("s", "", "still")); got == 0 {
		t.Error("its state cannot be looked at")
	}
	b.limit("s", func(l *engine.Limits) { l.TTL = time.Hour })
	k.hears("2")
	if info, err := b.Show(t.Context(), "s"); err != nil || info.Paused != nil || info.LimitHit == nil || info.LimitHit.Limit != "ttl" {
		t.Errorf("it has gone on: %+v, %v", info, err)
	}
	k.ends()

	// The time of a command stands still with it.
	b.limit("s", func(l *engine.Limits) { l.Time = 1500 * time.Millisecond })
	k = b.talk("s")
	b.limit("s", func(l *engine.Limits) { l.TTL = time.Millisecond })
	b.untilPaused("s", "ttl")
	<-time.After(1500 * time.Millisecond)
	b.limit("s", func(l *engine.Limits) { l.TTL = 0 })
	k.say()
	k.hears("1")
	k.ends()

	// A keeper that is killed leaves nothing that stands still.
	b.limit("s", func(l *engine.Limits) { l.TTL, l.Time = time.Millisecond, 0 })
	if _, err := b.Supervise.Exec(t.Context(), "s", b.command("true")); !errors.Is(err, errs.ErrDenied) {
		t.Errorf("a command in it: %v", err)
	}
	b.limit("s", func(l *engine.Limits) { l.TTL = 0 })
	k = b.talk("s")
	b.limit("s", func(l *engine.Limits) { l.TTL = time.Millisecond })
	b.untilPaused("s", "ttl")
	if err := syscall.Kill(b.keeperOf("s").PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if st, err := k.Wait(t.Context()); err != nil || st.Signal != syscall.SIGKILL {
		t.Errorf("its command ended with %v, %v", st, err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	b.limit("s", func(l *engine.Limits) { l.TTL = 0 })
	b.in("s", "true")
	if info, err := b.Show(t.Context(), "s"); err != nil || info.Paused != nil {
		t.Errorf("after its keeper was killed: %+v, %v", info, err)
	}
	b.sound("a keeper killed while its sandbox stood still")
}

func TestWhatDoesNothingIsPausedUntilSomethingComes(t *testing.T) { asBoth(t, idleIsPaused) }

func idleIsPaused(t *testing.T, b *bench) {
	b.setStage()
	b.limit("s", func(l *engine.Limits) { l.Idle = 200 * time.Millisecond })
	k := b.talk("s")
	b.untilPaused("s", "idle")
	k.say() // what is typed lets it go on
	k.hears("1")
	b.untilPaused("s", "idle")
	b.in("s", "true") // and so does a command
	b.untilPaused("s", "idle")
	b.limit("s", func(l *engine.Limits) { l.Idle = 0 })
	k.say()
	k.hears("2")
	k.ends()
	b.limit("s", func(l *engine.Limits) { l.Idle = 500 * time.Millisecond })
	before, err := b.Show(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	b.in("s", "timeout 1 sh -c 'while :; do :; done' || :") // what computes is not idle
	if info, err := b.Show(t.Context(), "s"); err != nil || !info.LimitHit.When.Equal(before.LimitHit.When) {
		t.Errorf("it was paused while it computed: %+v, %v", info.LimitHit, err)
	}

	// What belongs to one command cannot stay paused: the command ends.
	req := b.request()
	req.Policy.Limits.Idle = 200 * time.Millisecond
	s, err := b.Run(t.Context(), req, b.command("exec sleep 1000"))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := s.Wait(t.Context()); err != nil || st.Signal != syscall.SIGKILL || s.Hit == nil || s.Hit.Limit != "idle" {
		t.Errorf("it ended with %v, %v, %+v", st, err, s.Hit)
	}
	if err := s.Discard(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestNothingIsStartedInWhatIsPaused(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.setStage()
		k := b.talk("s")
		ctx, cancel := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for range 4 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					c := b.command("exit 3")
					p, err := b.Supervise.Exec(t.Context(), "s", c)
					if errors.Is(err, errs.ErrDenied) {
						time.Sleep(5 * time.Millisecond) // who tries again and again keeps the record locked
						continue
					}
					var st isolate.Status
					if err == nil {
						st, err = p.Wait(t.Context())
						err = errors.Join(err, p.Close())
					}
					if err != nil || st.ExitCode() != 3 {
						t.Errorf("%v, %v", st, err)
						return
					}
				}
			})
		}
		for range 10 {
			b.limit("s", func(l *engine.Limits) { l.TTL = time.Millisecond })
			b.untilPaused("s", "ttl")
			b.limit("s", func(l *engine.Limits) { l.TTL = 0 })
		}
		cancel()
		crowd.Wait()
		k.say()
		k.hears("1")
		k.ends()
	})
}

// Whoever has a sandbox stand still for a snapshot may be slow, or stopped: that does not
// hold up its end.
func TestASandboxThatIsHeldStillEnds(t *testing.T) { asBoth(t, heldStillEnds) }

func heldStillEnds(t *testing.T, b *bench) {
	b.new("s")
	k := b.talk("s")
	conn, err := fdsock.Dial(filepath.Join(b.state, "sandboxes/s/keeper"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Send([]byte(`{"freeze":true}`)); err != nil {
		t.Fatal(err)
	}
	if msg, _, err := conn.Receive(); err != nil || string(msg) != `{"frozen":true}` {
		t.Fatalf("%s, %v", msg, err)
	}
	b.limit("s", func(l *engine.Limits) { l.TTL = time.Millisecond }) // it is to be paused at once
	<-time.After(100 * time.Millisecond)
	began := time.Now()
	if err := b.Supervise.Stop(t.Context(), "s"); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("stop: %v after %v", err, time.Since(began))
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Remove(t.Context(), "s"); err != nil {
		t.Error(err)
	}
}
