package isolate

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// BenchmarkFork measures a bare fork and exec of true, the yardstick for the others.
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

// BenchmarkExec runs true in an existing container.
func BenchmarkExec(b *testing.B) {
	container := open(b, benchSpec(b))
	c := Command{Args: []string{"/bin/true"}, Dir: "/"}
	for b.Loop() {
		p, err := container.Exec(context.Background(), c)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart creates a container, runs true in it and ends it.
func BenchmarkStart(b *testing.B) {
	spec := benchSpec(b)
	c := Command{Args: []string{"/bin/true"}, Dir: "/"}
	for b.Loop() {
		settle(b, spec)
		container, p, err := Start(context.Background(), spec, &c)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(context.Background()); err != nil {
			b.Fatal(err)
		}
		if err := container.Close(context.Background()); err != nil {
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

// settle removes the marks that keep volatile upper layers from being mounted again.
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
