package ports

import (
	"fmt"
	"testing"
)

// TestOnlyListeningSocketsAreFound: in the kernel's own text, and in what it does not write.
func TestOnlyListeningSocketsAreFound(t *testing.T) {
	const text = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   2: 00000000:0050 00000000:0000 0A
   2: 00000000:0050 00000000:0000 0A
   0: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 0
   x: zz:0016 0:0 0A
   x: 01:0016 0:0 0A
   x: 0100007F:0000 0:0 0A
   x: 0100007F 0:0 0A
	0A
`
	if got, want := fmt.Sprint(Listening(text)), "[[::1]:22 0.0.0.0:80 127.0.0.1:8080]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
