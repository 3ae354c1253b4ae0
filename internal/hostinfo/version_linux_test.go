package hostinfo

import "testing"

func TestVersionsAreComparedAsNumbers(t *testing.T) {
	for _, c := range []struct {
		release      string
		major, minor int
		before       bool
	}{
		{"6.1.0-49-amd64", 6, 5, true},
		{"6.5.0", 6, 5, false},
		{"6.18.5+", 6, 5, false},
		{"5.15.153.1-microsoft-standard-WSL2", 6, 5, true},
		{"10.0-rc1", 6, 5, false},
		{"6.4", 6, 5, true},
		{"of our own", 6, 5, false},
	} {
		if got := before(c.release, c.major, c.minor); got != c.before {
			t.Errorf("%s before %d.%d: %t", c.release, c.major, c.minor, got)
		}
	}
}
