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
	"strconv"
	"strings"
	"testing"
)

// ShardsEnv is the environment variable with the number of processes that run the tests of a test binary that
// calls [Shards]. make test, make test-long and make race set it for packages with many short tests that wait
// for disks.
const ShardsEnv = "SNAPFS_TEST_SHARDS"

// Shards runs the tests of m and returns the exit status for os.Exit. If [ShardsEnv] is n, n further
// processes run every n-th test each, at the same time and, as root, in mount namespaces of their own. The
// output of the first process comes first. A -run that chooses subtests, or fewer tests than processes, is
// not distributed.
func Shards(m *testing.M) int {
	flag.Parse()
	n, _ := strconv.Atoi(os.Getenv(ShardsEnv))
	chosen := flag.Lookup("test.run").Value.String()
	if n < 2 || strings.Contains(chosen, "/") || flag.Lookup("test.list").Value.String() != "" {
		return m.Run()
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if chosen == "" {
		chosen = "."
	}
	list, err := exec.Command(self, "-test.list="+chosen).Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "listing the tests:", err)
		return 1
	}
	tests := make([][]string, n)
	for i, name := range strings.Fields(string(list)) {
		tests[i%n] = append(tests[i%n], regexp.QuoteMeta(name))
	}
	if len(tests[n-1]) == 0 {
		return m.Run()
	}

	later := make([]bytes.Buffer, n)
	shards := make([]*exec.Cmd, n)
	status := 0
	for i := range shards {
		args := slices.Concat([]string{self}, os.Args[1:], []string{"-test.run=^(" + strings.Join(tests[i], "|") + ")$"})
		if os.Geteuid() == 0 {
			args = append([]string{"unshare", "--mount", "--propagation", "slave"}, args...)
		}
		shards[i] = exec.Command(args[0], args[1:]...)
		// A test binary that a test starts again runs its selection in one process.
		shards[i].Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, ShardsEnv+"=") })
		shards[i].Stdout, shards[i].Stderr = &later[i], &later[i]
		if i == 0 {
			shards[i].Stdout, shards[i].Stderr = os.Stdout, os.Stderr
		}
		if err := shards[i].Start(); err != nil {
			fmt.Fprintln(os.Stderr, "starting some of the tests:", err)
			status = 1
		}
	}
	for i, shard := range shards {
		if shard.Process != nil && shard.Wait() != nil {
			status = 1
		}
		if _, err := os.Stdout.Write(later[i].Bytes()); err != nil {
			status = 1
		}
	}
	return status
}
