package e2b_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/e2b"
)

// TestStalledClientsLeaveTheFilesToOthers: as many as a sandbox has processes that read files, first with downloads and
// then with uploads. Cost: a second.
func TestStalledClientsLeaveTheFilesToOthers(t *testing.T) {
	treetest.NeedRoot(t)
	d := newDesk(t, func(o *e2b.Options) { e2b.Stall(o, 200*time.Millisecond) })
	s := d.create(nil)
	s.sh("truncate -s 1G big")
	// stall sends a request on a connection of its own, and returns what reads the reply.
	stall := func(request string) *bufio.Reader {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		head, body, _ := strings.Cut(request, "\n")
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %s\r\nX-Access-Token: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", head, s.SandboxID, s.Token, 10*len(body), body)
		return bufio.NewReaderSize(conn, 16)
	}
	others := func() {
		t.Helper()
		began := time.Now()
		if reply, data := d.request(http.MethodGet, "/files?path=a", nil, s.headers()...); reply.StatusCode != http.StatusOK || string(data) != "real" {
			t.Errorf("%d %s", reply.StatusCode, data)
		}
		if waited := time.Since(began); waited > 10*time.Second {
			t.Errorf("another client waited for %v", waited)
		}
	}

	var downloads, uploads []*bufio.Reader
	for range e2b.MostFiles {
		downloads = append(downloads, stall("GET /files?path=big\n"))
	}
	for _, from := range downloads {
		if line, err := from.ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
			t.Fatal(line, err)
		}
	}
	others()
	for i := range e2b.MostFiles {
		uploads = append(uploads, stall(fmt.Sprintf("POST /files?path=up%d\nbeginning", i)))
	}
	for _, from := range uploads {
		reply, err := http.ReadResponse(from, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := reply.Body.Close(); err != nil || reply.StatusCode != http.StatusBadRequest {
			t.Errorf("a stalled upload: %s, %v", reply.Status, err)
		}
	}
	others()
	if got := s.sh("ls -A"); got != "a\nbig\n" {
		t.Errorf("after stalled uploads: %q", got)
	}
}
