package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestASealedCopyRunsAndNobodyChangesIt: not through its descriptor, nor what it is a
// copy of.
func TestASealedCopyRunsAndNobodyChangesIt(t *testing.T) {
	c, err := SealedCopy("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run := exec.Command("/proc/self/fd/0", "-c", "echo it runs")
	run.Stdin = c
	if out, err := run.CombinedOutput(); string(out) != "it runs\n" {
		t.Errorf("%s, %v", out, err)
	}
	w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", c.Fd()), os.O_WRONLY, 0)
	if err == nil {
		_, err = w.Write([]byte("x"))
		w.Close()
	}
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
		t.Errorf("it can be written to: %v", err)
	}
	if _, err := SealedCopy("/nothing/here"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
