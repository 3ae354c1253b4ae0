package main

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestFourBombsLeaveTheHostResponsive: a fork bomb, a memory bomb, a disk filler and a
// busy loop at once, each under its limits, which leave half of the processors to others.
// In a fifth sandbox `true` takes no more than three times what it takes when all is
// quiet, and that again when they have gone: medians, measured again once where another
// program has come in between.
func TestFourBombsLeaveTheHostResponsive(t *testing.T) {
	treetest.NeedRoot(t) // who has control groups
	treetest.NeedProgram(t, "perl")
	treetest.NeedProgram(t, "mkfs.btrfs")
	b := newDesk(t)
	b.snapfs("pool", "create", "--size", "1G").want(0) // which holds --disk
	t.Cleanup(func() {
		b.clear()
		b.snapfs("pool", "rm").want(0)
	})
	for try := range 2 {
		quiet := b.aTrue()
		bombs := b.light()
		amid := b.aTrue()
		bombs.end()
		after := b.aTrue()
		t.Logf("`snapfs run -- true` takes %v quiet, %v amid four bombs, %v after", quiet, amid, after)
		if amid <= 3*quiet && after <= 2*quiet {
			break
		}
		if try == 1 {
			t.Error("the host is not responsive")
		}
	}
	for _, args := range bombers {
		awaitRunning(t, args[len(args)-1], false)
	}
	b.real()
}

// aTrue is how long `snapfs run -- true` takes: the median of some.
func (b *desk) aTrue() time.Duration {
	b.t.Helper()
	var took []time.Duration
	for range 15 {
		began := time.Now()
		b.snapfs("run", "-q", "--", "true").want(0)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// bombers are the commands of the four, which say when they have hit their limit; the
// memory bomb is ended by it.
var bombers = map[string][]string{
	"forks":  {"--pids", "100", "--", "perl", "-e", `$| = 1; while (1) { defined fork or print "hit\n" }`},
	"memory": {"--memory", "64M", "--", "perl", "-e", `push @all, "x" x (1 << 20) while 1`},
	"disk":   {"--disk", "32M", "--", "sh", "-c", "while :; do cat /dev/zero > big 2> why; rm big; echo hit; done"},
	"busy":   {"--", "sh", "-c", "echo hit; while :; do :; done"},
}

// bombs go off until they are ended.
type bombs struct {
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// light starts the four, and waits until each has hit its limit. Those that end by it
// are started again.
func (b *desk) light() *bombs {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	l := &bombs{cancel: cancel}
	share := "--cpus=" + strconv.FormatFloat(float64(runtime.NumCPU())/8, 'f', -1, 64)
	var lit sync.WaitGroup
	for name, args := range bombers {
		lit.Add(1)
		l.all.Go(func() {
			var once sync.Once
			for ctx.Err() == nil {
				cmd := b.command(append([]string{"run", "-q", "--discard", share}, args...)...)
				out, err := cmd.StdoutPipe()
				if err == nil {
					err = cmd.Start()
				}
				if err != nil {
					b.t.Error(name, err)
					break
				}
				stop := context.AfterFunc(ctx, func() { cmd.Process.Signal(syscall.SIGKILL) }) //nolint:errcheck // it may have ended
				if first := make([]byte, 1); name != "memory" {
					if _, err := out.Read(first); err == nil {
						once.Do(lit.Done)
					}
				}
				_, _ = io.Copy(io.Discard, out)
				err = cmd.Wait()
				stop()
				var exit *exec.ExitError
				if name == "memory" && errors.As(err, &exit) && exit.ExitCode() == 124 {
					once.Do(lit.Done)
				} else if ctx.Err() == nil {
					b.t.Errorf("%s: %v", name, err)
					break
				}
			}
			once.Do(lit.Done)
		})
	}
	lit.Wait()
	return l
}

func (l *bombs) end() {
	l.cancel()
	l.all.Wait()
}
