package limits

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCeilingIsTheLowestLimitAbove: the page cache counts as available, and a group without a limit has no
// effect.
func TestCeilingIsTheLowestLimitAbove(t *testing.T) {
	dir := t.TempDir()
	write := func(group string, files ...string) string {
		path := filepath.Join(dir, group)
		must(t, os.MkdirAll(path, 0o700))
		for i := 0; i < len(files); i += 2 {
			must(t, os.WriteFile(filepath.Join(path, files[i]), []byte(files[i+1]+"\n"), 0o600))
		}
		return path
	}
	var c Ceiling
	for _, group := range []string{
		write("a/b", "memory.max", "max", "memory.current", "300", "cpu.max", "max 100000"),
		write("a", "memory.max", "1000", "memory.current", "700", "memory.stat", "anon 500\nfile 100\nfile_mapped 50", "cpu.max", "150000 100000"),
		write("", "memory.max", "5000", "memory.current", "4900", "cpu.max", "300000 100000"),
	} {
		c.lowerMemory(group, "memory.max", "memory.current", "file")
		c.lowerCPUs("x", "y") // a group without the controller
		c.lowerCPUs("-1", "100000")
		quota := readTrimmed(group, "cpu.max")
		c.lowerCPUs(quota[:len(quota)-len(" 100000")], "100000")
	}
	if c.Memory != (Known[int64]{1000, true}) || c.MemoryLeft != (Known[int64]{100, true}) || c.CPUs != (Known[float64]{1.5, true}) {
		t.Errorf("%+v", c)
	}
	c = Ceiling{}
	c.lowerMemory(write("v1", "memory.limit_in_bytes", "9223372036854771712", "memory.usage_in_bytes", "1"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")
	if c != (Ceiling{}) {
		t.Errorf("no limit: %+v", c)
	}
	if _, err := CeilingHere(); err != nil {
		t.Error(err)
	}
}
