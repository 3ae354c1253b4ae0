package network

import "testing"

// TestBothAllowsNoMoreThanEither, in particular for special ranges.
func TestBothAllowsNoMoreThanEither(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"a.example,b.example", "b.example,c.example", "b.example"},
		{"a.example", "a.example:443", "a.example:443"},
		{"a.example:80-90", "a.example:85-95", ""},
		{"*.example", "a.example:1,example,*.a.example", "a.example:1,*.a.example"},
		{"*.a.example", "*.example", "*.a.example"},
		{"192.0.2.0/24", "192.0.2.0/28:80,198.51.100.0/24", "192.0.2.0/28:80"},
		{"0.0.0.0/0", "10.0.0.0/8", ""},
		{"10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/16"},
		{"192.0.2.0/24", "192.0.2.7", ""}, // it may be this host's own
		{"192.0.2.7", "192.0.2.7:443", "192.0.2.7:443"},
		{"a.example", "192.0.2.0/24", ""},
		{"::/0", "192.0.2.0/24", ""},
		{"*.example+bytes=1M", "a.example,b.example", "a.example+bytes=1M"},
		{"*.example:80-90+connections=2", "a.example:80,a.example:81", "a.example:80+connections=2"},
		{"a.example:443+bytes=1M,a.example", "a.example:400-500", "a.example:443+bytes=1M"},
		{"GET a.example+rate=10/s+body=1M", "GET a.example+rate=100/h+body=2M", "GET a.example+rate=10/h+body=1M"},
		{"GET *.example+rate=2/m", "GET a.example,GET b.example", "GET a.example+rate=2/m"},
		{"a.example+bytes=2M+ech+quic", "*.example+bytes=1M+connections=3+quic,a.example", "a.example+bytes=1M+connections=3"},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := parse(t, pair[0]).Both(parse(t, pair[1])).String(); got != c.want {
				t.Errorf("%s and %s: %q, not %q", pair[0], pair[1], got, c.want)
			}
		}
	}
}
