package isolate

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

func TestSmokeRoot(t *testing.T) {
	dir := treetest.Dir(t)
	up, wk := filepath.Join(dir, "u"), filepath.Join(dir, "w")
	os.Mkdir(up, 0o755)
	os.Mkdir(wk, 0o755)
	spec := Spec{Mounts: []Mount{{Target: "/", Overlay: &Overlay{Lower: []string{"/"}, Upper: up, Work: wk, Nested: true}}},
		Network: NetworkNone, IDs: Own(1 << 28), Hide: []string{"/root", "/etc/shadow", "/nonexistent"}}
	smoke(t, spec)
}

func TestSmokeUser(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	spec := Spec{Mounts: []Mount{{Target: "/", Skeleton: "/"}, {Target: "/usr", Source: "/usr", ReadOnly: true}, {Target: "/etc", Source: "/etc", ReadOnly: true}},
		Network: NetworkNone, IDs: Same, Hide: []string{"/root", "/etc/passwd", "/nonexistent"}}
	smoke(t, spec)
}

func smoke(t *testing.T, spec Spec) {
	r, w, _ := os.Pipe()
	t0 := time.Now()
	box, p, err := Start(context.Background(), spec, &Command{Args: []string{"sh", "-c", os.Getenv("SMOKE")}, Env: []string{"PATH=/bin:/usr/bin"}, Dir: "/", Stdout: w, Stderr: w})
	if err != nil {
		t.Fatal(err)
	}
	t1 := time.Now()
	w.Close()
	out, _ := io.ReadAll(r)
	st, err := p.Wait(context.Background())
	t2 := time.Now()
	<-box.Idle()
	fmt.Println(string(out), st, err)
	err = box.Close(context.Background())
	fmt.Println(t1.Sub(t0), t2.Sub(t1), time.Since(t2), err)
}
