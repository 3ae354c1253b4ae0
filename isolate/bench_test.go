package isolate

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// BenchmarkFork is the yardstick: a bare fork and exec of true.
func BenchmarkFork(b *testing.B) {
	for b.Loop() {
		pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExec runs true in a box that stands.
func BenchmarkExec(b *testing.B) {
	box := open(b, benchSpec(b))
	c := Command{Args: []string{"/bin/true"}, Dir: "/"}
	for b.Loop() {
		p, err := box.Exec(context.Background(), c)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart builds a box, runs true in it and takes it down.
func BenchmarkStart(b *testing.B) {
	spec := benchSpec(b)
	c := Command{Args: []string{"/bin/true"}, Dir: "/"}
	for b.Loop() {
		settle(b, spec)
		box, p, err := Start(context.Background(), spec, &c)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
		if err := box.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

func benchSpec(b *testing.B) Spec {
	if os.Geteuid() == 0 {
		return rootSpec(b)
	}
	return userSpec(b)
}

// settle lets the volatile upper layers be mounted again.
func settle(b *testing.B, spec Spec) {
	for _, m := range spec.Mounts {
		if m.Overlay == nil {
			continue
		}
		if err := os.RemoveAll(m.Overlay.Work + "/work/incompat"); err != nil {
			b.Fatal(err)
		}
	}
}
