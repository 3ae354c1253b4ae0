// Snapfs-shift shows one tree of a sandbox of root's with the users that the sandbox
// has, where the tree's filesystem cannot do so itself (see package isolate/shift).
// Snapfs starts it, with descriptors that nobody else has. It is a program of its own
// because the library that it serves with would cost every start of snapfs 0.3 ms.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/snapfs/snapfs/isolate/shift"
)

func main() {
	base, err := uint64(0), error(nil)
	if len(os.Args) == 2 {
		base, err = strconv.ParseUint(os.Args[1], 10, 32)
	}
	if len(os.Args) != 2 || err != nil || base == 0 {
		fmt.Fprintln(os.Stderr, "snapfs-shift: it is started by snapfs\nhint: snapfs run -- COMMAND")
		os.Exit(2)
	}
	if err := shift.Serve(shift.Device, os.NewFile(shift.Tree, "tree"), uint32(base)); err != nil {
		fmt.Fprintln(os.Stderr, "snapfs-shift:", err)
		os.Exit(1)
	}
}
