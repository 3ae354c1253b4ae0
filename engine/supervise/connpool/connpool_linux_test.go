package connpool

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/internal/fdsock"
)

// A served is a socket that stands for that of a supervisor.
type served struct {
	t      *testing.T
	path   string
	listen *fdsock.Conn
}

func serveAt(t *testing.T, path string) *served {
	t.Helper()
	l, err := fdsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &served{t, path, l}
}

// connect returns a new connection to the socket, and the supervisor's end of it.
func (s *served) connect() (connection, *fdsock.Conn) {
	s.t.Helper()
	socket, err := At(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	conn, err := fdsock.Dial(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	theirs, err := s.listen.Accept()
	if err != nil {
		s.t.Fatal(err)
	}
	return connection{socket, conn}, theirs
}

func (s *served) take(c *Pool) *fdsock.Conn {
	s.t.Helper()
	socket, err := At(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	return c.Take(socket)
}

// closed reports whether the process at the other end of conn has closed its end.
func closed(t *testing.T, conn *fdsock.Conn) bool {
	t.Helper()
	defer conn.Close()
	return conn.HungUp()
}

func TestAConnectionIsReusedWhileItsSupervisorServes(t *testing.T) {
	c := new(Pool)
	path := filepath.Join(t.TempDir(), "keeper")
	s := serveAt(t, path)
	k, theirs := s.connect()
	c.Put(k.to, k.conn)
	if other := c.Take(Socket{path + "2", k.to.info}); other != nil {
		t.Error("a connection to another sandbox's supervisor was taken")
	}
	if got := s.take(c); got != k.conn {
		t.Fatalf("took %v, want %v", got, k.conn)
	}
	if got := s.take(c); got != nil {
		t.Error("a connection was taken twice")
	}

	c.Put(k.to, k.conn)
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.take(c); got != nil {
		t.Error("a connection was taken that the supervisor has closed")
	}

	k, theirs = s.connect()
	c.Put(k.to, k.conn)
	if err := os.Remove(path); err != nil { // as Sync does
		t.Fatal(err)
	}
	next := serveAt(t, path)
	if got := next.take(c); got != nil {
		t.Error("a connection was taken to a supervisor that no longer has the socket")
	}
	if !closed(t, theirs) {
		t.Error("the connection to that supervisor is still open")
	}
}

func TestFewConnectionsAreHeld(t *testing.T) {
	c := new(Pool)
	dir := t.TempDir()
	var all []*fdsock.Conn
	for i := range maxConnections + 1 {
		k, theirs := serveAt(t, filepath.Join(dir, "keeper"+string(rune('A'+i)))).connect()
		c.Put(k.to, k.conn)
		all = append(all, theirs)
	}
	if len(c.idle) != maxConnections || !all[0].HungUp() || all[1].HungUp() {
		t.Errorf("%d connections are held, the first of them %v", len(c.idle), all[0].HungUp())
	}
	s := serveAt(t, filepath.Join(dir, "keeper"))
	for i := range maxEach + 1 {
		k, theirs := s.connect()
		c.Put(k.to, k.conn)
		all = append(all, theirs)
		if got, want := theirs.HungUp(), i == maxEach; got != want {
			t.Errorf("connection %d to one supervisor: closed %v, want %v", i, got, want)
		}
	}
	c.Close()
	k, theirs := s.connect()
	c.Put(k.to, k.conn) // of a command that ends later
	for _, conn := range append(all, theirs) {
		if !closed(t, conn) {
			t.Fatal("a connection is open after Close")
		}
	}
}
