package isolate

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test binary be other programs: the one that tries to get
// out of a box, and a keeper to be killed.
func TestMain(m *testing.M) {
	switch os.Getenv("SNAPFS_TEST_AS") {
	case "prisoner":
		prisoner()
	case "keeper":
		keeper()
	default:
		os.Exit(m.Run())
	}
}

// keeper starts a box that never ends by itself, says so, and waits.
func keeper() {
	c := shell("trap '' TERM; (setsid sleep 1000 &); sleep 1000")
	spec := Spec{Mounts: []Mount{{Target: "/", Source: "/"}}, Network: NetworkNone, IDs: Same}
	if os.Geteuid() == 0 {
		spec.IDs = Own(1 << 28)
	}
	box, _, err := Start(context.Background(), spec, &c)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(box.pid)
	select {}
}
