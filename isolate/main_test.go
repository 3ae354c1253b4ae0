package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/idmap"
)

// TestMain makes the test binary act as other programs: a prisoner that tries to escape, a supervisor to be
// killed, and others.
func TestMain(m *testing.M) {
	switch os.Getenv("SNAPFS_TEST_AS") {
	case "prisoner":
		prisoner()
	case "supervisor":
		supervisor()
	case "visitor":
		visitor()
	case "limited":
		limited()
	case "notified":
		notified()
	case "idmapper":
		base, err := strconv.ParseUint(os.Getenv("BASE"), 10, 32)
		if err == nil {
			err = idmap.Serve(idmap.Device, os.NewFile(idmap.Tree, "tree"), uint32(base))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		os.Exit(treetest.Shards(m))
	}
}

// limited prints how many files a command may open.
func limited() {
	c := shell("ulimit -Sn")
	c.Stdout = os.Stdout
	container, p, err := Start(context.Background(), whole(), &c)
	if err == nil {
		_, err = p.Wait(context.Background())
		err = errors.Join(err, container.Close(context.Background()))
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
	}
}

// whole is a spec of the host's tree without changes.
func whole() Spec {
	spec := Spec{Mounts: []Mount{{Target: "/", Source: "/"}}, Network: NetworkNone, IDs: Same}
	if os.Geteuid() == 0 {
		spec.IDs = Own(1 << 28)
	}
	return spec
}

// supervisor starts a container that does not end by itself, prints its pid, and waits.
func supervisor() {
	c := shell("trap '' TERM; (setsid sleep 1000 &); sleep 1000")
	container, _, err := Start(context.Background(), whole(), &c)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, container.pid)
	select {}
}
