package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestARaceIsWatchedAndItsWinnerPicked: at a terminal.
func TestARaceIsWatchedAndItsWinnerPicked(t *testing.T) { asRoot(t, watched) }

func TestARaceIsWatchedAndItsWinnerPickedByAnOrdinaryUser(t *testing.T) { asUserLater(t, watched) }

func watched(t *testing.T) {
	b := newDesk(t)
	time.Sleep(20 * time.Millisecond) // drift is told by the clock of the filesystem
	race := []string{
		"race", "--try", "sleep 0.7; echo one > that", "--try", "sleep 0.7; seq 100; echo two > that", "--try", "exit 1",
		"--check", "test -e that",
	}
	p := sit(t, b, race...)
	p.sees("TRY  STATE")
	p.sees("running")
	p.sees("\x1b[J") // it is drawn again
	p.sees("3    failed (1)")
	p.sees("PATH  1  2  3")
	p.sees("[1/l1/k/n]")
	p.types("3\n") // has not passed
	p.sees("[1/l1/k/n]")
	p.types("l2\n")
	p.sees("+two")
	p.sees("[1/l1/k/n]")
	p.types("2\n")
	p.sees("attempt 2 wins")
	p.sees("promoted ")
	if st := p.leaves(); st != 0 {
		t.Errorf("status %d", st)
	}
	b.real("that")
	<-p.closed
	if strings.Contains(p.screen.String(), "99\r\n100") {
		t.Error("what an attempt wrote is on the screen")
	}
	if err := os.Remove(filepath.Join(b.workspace, "that")); err != nil {
		t.Error(err)
	}
	p = sit(t, b, race...)
	p.sees("[1/l1/k/n]")
	p.types("n\n")
	if st := p.leaves(); st != 0 {
		t.Errorf("status %d", st)
	}
	b.none()
	p = sit(t, b, append(race, "--name", "r")...)
	p.sees("[1/l1/k/n]")
	p.types("\x04") // no answer loses nothing
	if st := p.leaves(); st != 0 {
		t.Errorf("status %d", st)
	}
	if got := b.snapfs("ls", "-q").want(0).stdout; got != "r-1\nr-2\n" {
		t.Errorf("left: %q", got)
	}
	b.real()
}

// none proves that no sandbox is left, and that there is nothing to mend.
func (b *desk) none() {
	b.t.Helper()
	if o := b.snapfs("ls", "-q").want(0); o.all != "" {
		b.t.Errorf("left: %q", o.all)
	}
}

// TestAnInterruptedRaceLeavesNothing: nothing runs, no sandbox is left, and the
// status says what it was.
func TestAnInterruptedRaceLeavesNothing(t *testing.T) { asRoot(t, interrupted) }

func TestAnInterruptedRaceLeavesNothingOfAnOrdinaryUser(t *testing.T) { asUserLater(t, interrupted) }

// stubborn is an attempt that nothing polite ends, with a daemon.
func stubborn(seconds string) []string {
	script := fmt.Sprintf("trap '' INT TERM HUP; (setsid sleep %s &); echo x > new; sleep %s", seconds, seconds)
	return []string{"race", "-n", "3", "--keep", "--", "sh", "-c", script}
}

func interrupted(t *testing.T) {
	b := newDesk(t)
	for _, how := range []string{"Ctrl-C", "a closed terminal", "TERM", "HUP", "INT", "KILL"} {
		var cmd *exec.Cmd
		var p *person
		if strings.Contains(how, " ") || how == "Ctrl-C" {
			p = sit(t, b, stubborn("33.25")...)
			cmd = p.cmd
			p.sees("running")
		} else {
			cmd = b.command(stubborn("33.25")...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		awaitRunning(t, "33.25", true)
		switch how {
		case "Ctrl-C":
			p.types("\x03")
		case "a closed terminal":
			p.keyboard.Close()
		default:
			sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}[how]
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if st := cmd.ProcessState.ExitCode(); st != 130 && how != "KILL" {
			t.Errorf("%s: status %d", how, st)
		}
		awaitRunning(t, "33.25", false)
		if how != "KILL" {
			b.none()
		} else if said := b.mended(); !strings.Contains(said, "was killed") {
			t.Errorf("ls after a kill: %q", said)
		}
		b.real()
	}
}

// mended lists sandboxes until there is none, and answers with all that was said: an
// attempt that was just being started holds its sandbox until its process has gone.
func (b *desk) mended() (said string) {
	b.t.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		o := b.snapfs("ls", "-q").want(0)
		said += o.all
		if o.stdout == "" {
			return said
		}
		if time.Since(start) > 20*time.Second {
			b.t.Fatalf("sandboxes of a race that was killed: %q", said)
		}
	}
}

// awaitRunning waits until a process with this argument is there, or none.
func awaitRunning(t *testing.T, arg string, there bool) {
	t.Helper()
	for start := time.Now(); running(arg) != there; time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatalf("a process with the argument %s: %v", arg, !there)
		}
	}
}

// TestRacesShareAWorkspace: two at once, each with a thousand lines of output for
// each attempt, none of which gets onto the screen or into another one's file.
func TestRacesShareAWorkspace(t *testing.T) { asRoot(t, races) }

func TestRacesShareAWorkspaceForAnOrdinaryUser(t *testing.T) { asUserLater(t, races) }

func races(t *testing.T) {
	b := newDesk(t)
	done := make(chan outcome, 2)
	for i := range 2 {
		go func() {
			done <- b.snapfs("race", "-n", "4", "--name", fmt.Sprint("r", i), "--output", fmt.Sprint(b.state, "-out", i), "--check", "test -s new", "--",
				"sh", "-c", "i=0; while [ $i -lt 1000 ]; do echo line $SNAPFS_ATTEMPT; i=$((i+1)); done | tee new")
		}()
	}
	for range 2 {
		if o := (<-done).want(0); strings.Contains(o.all, "line") {
			t.Errorf("the output is on the screen:\n%s", o.all)
		}
	}
	for i := range 2 {
		for n := 1; n <= 4; n++ {
			data, err := os.ReadFile(fmt.Sprintf("%s-out%d/%d.out", b.state, i, n))
			if err != nil || string(data) != strings.Repeat(fmt.Sprintf("line %d\n", n), 1000) {
				t.Errorf("race %d, attempt %d: %d bytes, %v", i, n, len(data), err)
			}
		}
	}
	b.none()
	b.real()
}
