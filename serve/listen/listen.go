// Package listen opens the sockets on which a server accepts connections: a unix socket of this user, one
// that systemd passes, TCP with or without TLS, or standard input and output. Read [Where] first, then
// [Where.Open].
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/errs"
)

// A Where says where a server listens. Without Listen and Stdio it listens on the unix socket, or on the
// socket that systemd passed.
type Where struct {
	// Socket is the path of the unix socket.
	Socket string `json:"socket,omitempty"`
	// Group is the name or the number of a group whose members may connect to the unix socket, too; "" for none. With
	// a group, every request needs a token.
	Group string `json:"group,omitempty"`
	// Listen is a TCP address with a port; "" for none.
	Listen string `json:"listen,omitempty"`
	// Cert and Key are the files of a TLS certificate and its key, for Listen.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// Hosts are more names under which callers may reach Listen.
	Hosts []string `json:"hosts,omitempty"`
	// Stdio serves one connection on standard input and output.
	Stdio bool `json:"stdio,omitempty"`
}

const listening = "listening"

// A Listener accepts the connections of a server, on the socket that a [Where] names. [Where.Open] returns
// it.
type Listener struct {
	net.Listener
	// Name is the address, for a person.
	Name string
	// Secure is the configuration for TLS; nil without it.
	Secure *tls.Config
	// MayBe reports whether a caller may have addressed the server by this Host header; nil permits every one.
	MayBe func(host string) bool
	// Once is set if it accepts one connection and then ends.
	Once bool
	// Local is set if every caller is this user or root.
	Local bool
}

// Open starts to listen. Errors: ErrBusy (another server has the socket), ErrInvalid (plain HTTP on an
// address that is not loopback, or a bad certificate), ErrExists, ErrDenied.
func (w Where) Open(ctx context.Context) (*Listener, error) {
	switch {
	case w.Stdio:
		return &Listener{Listener: newOnce(&stdio{}), Name: "standard input and output", Once: true, Local: true}, nil
	case w.Listen != "":
		return w.listenTCP(ctx)
	}
	passed, err := passedSocket()
	if err != nil {
		return nil, err
	}
	if passed != nil {
		if _, ok := passed.(*net.UnixListener); !ok {
			passed.Close() //nolint:errcheck // it is refused
			return nil, errs.New(listening, "", errs.ErrNotSupported, "systemd passed a socket that is no unix socket; name an address with --listen")
		}
		return w.unix(passed, passed.Addr().String()), nil
	}
	gid := -1
	if w.Group != "" {
		if gid, err = groupID(w.Group); err != nil {
			return nil, err
		}
	}
	u, err := listenUnix(ctx, w.Socket, gid)
	if err != nil {
		return nil, err
	}
	return w.unix(u, w.Socket), nil
}

// unix returns a listener on the unix socket l, called name. Without a group it accepts only this user and root; with
// a group it accepts all whom the kernel lets connect.
func (w Where) unix(l net.Listener, name string) *Listener {
	if w.Group == "" {
		l = peers{l}
	}
	return &Listener{Listener: l, Name: name, Local: w.Group == "", MayBe: w.localName}
}

// groupID returns the number of the group with this name or number. Errors: ErrNotFound.
func groupID(name string) (int, error) {
	if gid, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(gid), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, errs.New(listening, name, errs.ErrNotFound, "no group has this name", "getent group")
	}
	return strconv.Atoi(g.Gid)
}

// localName reports whether the Host header of a request on the unix socket may mean this server: it has no
// domain, is an address of loopback, or is in Hosts. A port may be forwarded to the socket. A malicious web
// page whose name leads to this machine (DNS rebinding) sends another Host.
func (w Where) localName(header string) bool {
	host := hostOf(header)
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || ip == nil && !strings.Contains(host, ".") ||
		slices.ContainsFunc(w.Hosts, func(n string) bool { return strings.EqualFold(n, host) })
}

// hostOf returns the host in a request's Host header, without a port and brackets, to compare it with the
// server's names.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

func (w Where) listenTCP(ctx context.Context) (*Listener, error) {
	host, _, err := net.SplitHostPort(w.Listen)
	if err != nil {
		return nil, errs.New(listening, w.Listen, errs.ErrInvalid, "the address needs the form HOST:PORT")
	}
	l := &Listener{Name: w.Listen}
	if w.Cert != "" {
		cert, err := tls.LoadX509KeyPair(w.Cert, w.Key)
		if err != nil && errs.KindOf(err) != nil { // of reading the files
			return nil, errs.With(listening, w.Cert, err)
		}
		if err != nil {
			return nil, errs.New(listening, w.Cert, errs.ErrInvalid, err.Error())
		}
		l.Secure = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, errs.New(listening, w.Listen, errs.ErrInvalid, "without TLS a token could be read on the way: only an address of loopback is possible",
			"snapfs serve --listen 127.0.0.1:PORT", "snapfs serve --listen ADDRESS:PORT --tls-cert FILE --tls-key FILE")
	}
	l.MayBe = hostCheck(host, w.Hosts, l.Secure)
	var config net.ListenConfig
	if l.Listener, err = config.Listen(ctx, "tcp", w.Listen); errors.Is(err, syscall.EADDRINUSE) {
		return nil, &errs.Error{Op: listening, Subject: w.Listen, Kind: errs.ErrBusy, Err: err}
	} else if err != nil {
		return nil, errs.With(listening, w.Listen, err)
	}
	l.Name = l.Addr().String()
	return l, nil
}

// hostCheck returns a function that reports whether the Host header of a request names this server. Accepted
// are address, localhost if the address is loopback, the names of the TLS certificate, and those of more.
func hostCheck(address string, more []string, secure *tls.Config) func(string) bool {
	names := append([]string{address}, more...)
	if ip := net.ParseIP(address); address == "localhost" || ip != nil && ip.IsLoopback() {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	return func(header string) bool {
		host := hostOf(header)
		if slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.EqualFold(n, host) }) {
			return true
		}
		return secure != nil && secure.Certificates[0].Leaf.VerifyHostname(host) == nil
	}
}

// listenUnix listens on a unix socket at path that only this user may open and, unless gid is -1, the members of that
// group. It replaces an old socket on which no server listens any more.
func listenUnix(ctx context.Context, path string, gid int) (net.Listener, error) {
	const longest = 107 // of a path in sockaddr_un
	if len(path) > longest {
		return nil, errs.New(listening, path, errs.ErrInvalid, "the path of a socket has at most 107 bytes", "snapfs serve --socket PATH")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, errs.With(listening, path, err)
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, errs.New(listening, path, errs.ErrExists, "it is no socket")
	}
	if err == nil {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			c.Close() //nolint:errcheck // nothing was sent
			return nil, errs.New(listening, path, errs.ErrBusy, "another server listens there")
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, errs.With(listening, path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, errs.With(listening, path, err)
		}
	}
	// The socket has another name until its mode is set.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if len(fresh) > longest {
		fresh = filepath.Join(filepath.Dir(path), "s")
	}
	_ = os.Remove(fresh) // of a killed server with this pid
	var config net.ListenConfig
	l, err := config.Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, errs.With(listening, path, err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	mode := os.FileMode(0o600)
	if gid >= 0 {
		mode = 0o660
		if err = onlyOwnersReplace(filepath.Dir(fresh)); err == nil {
			err = os.Lchown(fresh, -1, gid)
		}
	}
	if err == nil {
		err = os.Chmod(fresh, mode)
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errs.With(listening, path, errors.Join(err, l.Close(), os.Remove(fresh)))
	}
	return unlinking{l, path}, nil
}

// onlyOwnersReplace returns an error if other users can replace files of this user in the directory dir, such as a socket
// by a link to a file whose owner is then changed.
func onlyOwnersReplace(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o022 != 0 && info.Mode()&os.ModeSticky == 0 {
		return errs.New(listening, dir, errs.ErrDenied, "other users can replace the socket in this directory", "chmod go-w "+errs.Quoted(dir))
	}
	return err
}

// An unlinking is a listener on a unix socket that removes the socket's file when it is closed.
type unlinking struct {
	net.Listener
	path string
}

func (u unlinking) Close() error {
	_ = os.Remove(u.path) // one that is gone is gone
	return u.Listener.Close()
}

// A peers is a listener on a unix socket that accepts only connections of this user and of root.
type peers struct{ net.Listener }

func (p peers) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(c); err == nil && (uid == 0 || int(uid) == os.Geteuid()) {
			return c, nil
		}
		c.Close() //nolint:errcheck // a stranger's
	}
}

// A once is the listener of a server with a single client, whose connection is standard input and output.
// Accept returns that connection; the second Accept waits until it ends, and then fails.
type once struct {
	conn  net.Conn
	first chan net.Conn
	ended chan struct{}
}

func newOnce(s *stdio) *once {
	s.ended = make(chan struct{})
	o := &once{conn: s, first: make(chan net.Conn, 1), ended: s.ended}
	o.first <- s
	return o
}

func (o *once) Accept() (net.Conn, error) {
	select {
	case c := <-o.first:
		return c, nil
	case <-o.ended:
		return nil, io.EOF
	}
}

func (o *once) Close() error   { return o.conn.Close() }
func (o *once) Addr() net.Addr { return o.conn.LocalAddr() }
