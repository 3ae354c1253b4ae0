package listen

import "testing"

// TestAPageOfAnotherNameIsNotForASocket: a port may be forwarded to the socket, and then a web page's name may lead
// to it.
func TestAPageOfAnotherNameIsNotForASocket(t *testing.T) {
	w := Where{Hosts: []string{"box.example"}}
	for host, want := range map[string]bool{
		"": true, "localhost": true, "snapfs": true, "localhost:8080": true, "127.0.0.1:80": true, "[::1]:5": true, "box.example:1": true,
		"evil.example": false, "evil.example:8080": false, "10.0.0.1": false, "localhost.evil.example": false, "[::2]": false,
	} {
		if got := w.localName(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
