package engine_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/snapfs/snapfs/backends/all"
	"github.com/snapfs/snapfs/backends/fusecow/servetest"
	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/isolate/idmap"
)

// drivers are those of the program, with this one as the server of what is served.
func drivers() []snapshot.Driver {
	list := make([]snapshot.Driver, len(all.Drivers))
	for i, d := range all.Drivers {
		list[i] = servetest.Driver(d)
	}
	if only := os.Getenv(onlyEnv); only != "" {
		list = slices.DeleteFunc(list, func(d snapshot.Driver) bool { return d.Name != only })
	}
	return list
}

// onlyEnv names the one backend that a test, and all processes that it starts, is to have.
const onlyEnv = "SNAPFS_TEST_ONLY"

// shifter is this program as the one that shows trees without id-mapped mounts.
func shifter() ([]string, error) { return []string{"/proc/self/exe", "shifter"}, nil }

// TestMain makes the test binary its own keeper and server, and what tries walls.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "shifter" {
		base, err := strconv.ParseUint(os.Args[2], 10, 32)
		if err == nil {
			err = idmap.Serve(idmap.Device, os.NewFile(idmap.Tree, "tree"), uint32(base))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 2 && (os.Args[1] == "probe" || os.Args[1] == "crossed") {
		os.Exit(probing(os.Args[1:]))
	}
	if len(os.Args) == 4 && os.Args[1] == "keeper" {
		if err := keep(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 7 && os.Args[1] == "rehearse" {
		if err := rehearse(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	servetest.Main(m)
}

func keep(state, name string) error {
	ctx, arm := rehearsedKeeper()
	e, err := engine.Open(ctx, engine.Config{State: state, Drivers: drivers(), IDMapper: shifter})
	if err != nil {
		return err
	}
	arm()
	return e.Supervise.Supervise(ctx, name)
}
