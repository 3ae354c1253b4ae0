//go:build linux

package treetest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ShardsEnv is the environment variable that makes a test binary that calls [Halves] run its tests in two
// processes. make test sets it for packages with many short tests that wait for disks.
const ShardsEnv = "SNAPFS_TEST_SHARDS"

// Halves runs the tests of m and returns the exit status for os.Exit. If [ShardsEnv] is set and -run selects
// no test, it splits the tests between two new processes, which run at the same time and, as root, in mount
// namespaces of their own. The output of the second process follows that of the first.
func Halves(m *testing.M) int {
	flag.Parse()
	chosen := flag.Lookup("test.run").Value.String() + flag.Lookup("test.list").Value.String()
	if os.Getenv(ShardsEnv) == "" || chosen != "" {
		return m.Run()
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	list, err := exec.Command(self, "-test.list=.").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "listing the tests:", err)
		return 1
	}
	var tests [2][]string
	for i, name := range strings.Fields(string(list)) {
		tests[i%2] = append(tests[i%2], regexp.QuoteMeta(name))
	}

	var later bytes.Buffer
	var halves [2]*exec.Cmd
	for i := range halves {
		args := slices.Concat([]string{self}, os.Args[1:], []string{"-test.run=^(" + strings.Join(tests[i], "|") + ")$"})
		if os.Geteuid() == 0 {
			args = append([]string{"unshare", "--mount", "--propagation", "slave"}, args...)
		}
		halves[i] = exec.Command(args[0], args[1:]...)
		halves[i].Stdout, halves[i].Stderr = os.Stdout, os.Stderr
	}
	halves[1].Stdout, halves[1].Stderr = &later, &later
	status := 0
	for _, half := range halves {
		if err := half.Start(); err != nil {
			fmt.Fprintln(os.Stderr, "starting half of the tests:", err)
			status = 1
		}
	}
	for _, half := range halves {
		if half.Process != nil && half.Wait() != nil {
			status = 1
		}
	}
	if _, err := os.Stdout.Write(later.Bytes()); err != nil {
		status = 1
	}
	return status
}
