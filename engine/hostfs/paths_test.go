package hostfs

import "testing"

func TestRelativeToARootAndToADirectory(t *testing.T) {
	for _, c := range []struct{ path, prefix, want string }{
		{"/", "/", "."},
		{"/etc", "/", "etc"},
		{"/etc/x", "/", "etc/x"},
		{"/etc", "/etc", "."},
		{"/etc/x", "/etc", "x"},
		{"/etc/x/y", "/etc", "x/y"},
		{"a/b", "a/b", "."},
		{"a/b/c", "a", "b/c"},
		{"a/b/c", "a/b", "c"},
	} {
		if got := Relative(c.path, c.prefix); got != c.want {
			t.Errorf("%s relative to %s: %q, want %q", c.path, c.prefix, got, c.want)
		}
	}
}
