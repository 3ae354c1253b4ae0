package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/poll"
)

// TestAnInterruptedReceiveSaysHowItGoesOn: that it was interrupted, that what came is kept,
// and the command that has the rest sent; with the status of what was interrupted.
func TestAnInterruptedReceiveSaysHowItGoesOn(t *testing.T) { asRoot(t, receiveInterrupted) }

func TestAnInterruptedReceiveSaysHowItGoesOnToAnOrdinaryUser(t *testing.T) {
	asUserLater(t, receiveInterrupted)
}

func receiveInterrupted(t *testing.T) {
	b := newDesk(t)
	b.snapfs("new", "fix").want(0)
	write := b.command("exec", "fix", "--", "sh", "-c", "cat > large")
	noise := make([]byte, 2<<20)
	_, err := rand.NewChaCha8([32]byte{1}).Read(noise)
	write.Stdin = bytes.NewReader(noise)
	b.finish(write).want(0)
	way := b.snapfs("send", "fix").want(0).stdout
	b.snapfs("rm", "fix").want(0)
	r, w, perr := os.Pipe()
	if err = errors.Join(err, perr); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	receive := b.command("receive")
	var all strings.Builder
	receive.Stdin, receive.Stderr = r, &all
	err = errors.Join(receive.Start(), r.Close())
	if err == nil {
		_, err = w.WriteString(way[:1<<20]) // until all but what a pipe holds was read
	}
	// What was read is not stored at once on a busy machine.
	stored := func() (bool, error) {
		files, err := filepath.Glob(filepath.Join(b.state, "begun/*"))
		for _, f := range files {
			if st, err := os.Stat(f); err == nil && st.Size() >= 786432 {
				return true, nil
			}
		}
		return false, err
	}
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err = errors.Join(err, poll.Until(patient, 5*time.Millisecond, 50*time.Millisecond, stored), receive.Process.Signal(syscall.SIGINT)); err != nil {
		t.Fatal(err)
	}
	_ = receive.Wait()
	said := all.String()
	if status := receive.ProcessState.ExitCode(); status != exitInterrupted {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		"snapfs: receiving: fix@s1: ", "interrupted; the received ", " stay for a week, to resume from\n",
		"\nhint: snapfs receive --have | ssh HOST snapfs send fix@s1 --have - | snapfs receive\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("it says %q, without %q", said, want)
		}
	}
	if strings.Contains(said, "context") {
		t.Errorf("it says %q", said)
	}
	if have := b.snapfs("receive", "--have").want(0).stdout; !strings.Contains(have, "::786432:") {
		t.Errorf("there is %q", have)
	}
	if left := b.snapfs("ls", "-q").want(0).stdout; left != "" {
		t.Errorf("there is %q", left)
	}
	if kept, err := os.ReadDir(filepath.Join(b.state, "begun")); err != nil || len(kept) != 1 {
		t.Errorf("kept are %v, %v", kept, err)
	}
	b.real()
}
