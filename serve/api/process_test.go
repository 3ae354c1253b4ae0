//go:build linux

package api

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/proc"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/client"
	"github.com/snapfs/snapfs/serve/token"
)

// spawn starts snapfs serve as a process, and makes the client one of that.
func (d *desk) spawn(cmd *exec.Cmd) {
	d.t.Helper()
	r, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		d.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	_, address, ok := strings.Cut(strings.TrimSpace(line), "serving at ")
	if err != nil || !ok {
		d.t.Fatalf("%q, %v", line, err)
	}
	d.connect(address)
}

func (d *desk) serve(args ...string) *exec.Cmd {
	cmd := exec.Command(treetest.Program(), append([]string{"--state", d.state, "serve"}, args...)...)
	cmd.Dir = d.work
	return cmd
}

// TestAKilledServerLosesNothing kills a server while it runs a command, writes a file and has one command in the
// background. It costs some 1 s.
func TestAKilledServerLosesNothing(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	d := newState(t)
	first := d.serve()
	d.spawn(first)
	d.make("t1")
	d.start(client.CommandLine{Command: "until test -e go; do sleep 0.05; done; echo went"})
	r, err := d.try(t.Context(), "POST", "/v1/sandboxes/t1/exec", map[string]any{"command": "echo started; exec sleep 600"}, "Accept", ndjsonType)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := bufio.NewReader(r.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	content, feed := io.Pipe()
	written := make(chan error, 1)
	go func() {
		r, err := d.try(context.Background(), "PUT", file("a.txt"), content)
		if err == nil {
			err = errors.Join(errors.New(r.Status), r.Body.Close())
		}
		written <- err
	}()
	if _, err := feed.Write([]byte(strings.Repeat("half", 100_000))); err != nil {
		t.Fatal(err)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // until then it may still listen
	feed.CloseWithError(errors.New("the server was killed"))
	if err := <-written; err == nil {
		t.Error("a killed server has answered")
	}

	d.spawn(d.serve())
	if r := d.read("a.txt", 0); r != "one\n" {
		t.Errorf("got %.40q", r)
	}
	d.want(200, nil, "PUT", file("go"), strings.NewReader(""))
	var c Command
	d.want(200, &c, "GET", "/v1/sandboxes/t1/commands/1?wait=20s", nil)
	if c.Running || c.Exit == nil || *c.Exit != 0 {
		t.Errorf("%+v", c)
	}
	if r := d.want(200, nil, "GET", "/v1/sandboxes/t1/commands/1/output", nil); r.body != "went\n" {
		t.Errorf("got %q", r.body)
	}
	waitFor(t, "the end of the command whose caller's server was killed", func() bool {
		return !call(d.c.GetSandboxWithResponse(t.Context(), "t1")).is(d, 200).JSON200.Running
	})
	if r := d.exec("t1", "ls -A"); r.Stdout.Text != "a.txt\ngo\n" {
		t.Errorf("left: %q", r.Stdout.Text)
	}
}

// TestNoSupervisorOutlivesAKilledServer: neither one that waits for a sandbox, nor one whose sandbox ends later. It
// costs some 1 s.
func TestNoSupervisorOutlivesAKilledServer(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	d := newState(t)
	server := d.serve()
	d.spawn(server)
	d.make("t1")
	d.make("t2")
	if r := d.exec("t1", "true"); r.Exit != 0 {
		t.Fatalf("%+v", r)
	}
	r, err := d.try(t.Context(), "POST", "/v1/sandboxes/t2/exec", map[string]any{"command": "echo started; exec sleep 600"}, "Accept", ndjsonType)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if _, err := bufio.NewReader(r.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	children := childrenOf(t, server.Process.Pid)
	if len(children) == 0 {
		t.Fatal("the server has no processes")
	}
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait()
	for _, pid := range children {
		waitFor(t, "the end of a process of a killed server", func() bool { return !proc.Alive(pid) })
	}
}

// childrenOf returns the processes whose parent is pid.
func childrenOf(t *testing.T, pid int) (children []proc.Process) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		data, _ := os.ReadFile(path) // one that cannot be read has ended
		_, after, _ := strings.Cut(string(data), ") ")
		var state string
		var parent, child int
		if n, _ := fmt.Sscan(after, &state, &parent); n == 2 && parent == pid {
			_, err := fmt.Sscan(filepath.Base(filepath.Dir(path)), &child)
			if err != nil {
				t.Fatal(err)
			}
			if p, err := proc.Identify(child); err == nil { // else it has just ended
				children = append(children, p)
			}
		}
	}
	return children
}

// TestASocketFromSystemdIsServed costs some 0.2 s.
func TestASocketFromSystemdIsServed(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	d := newState(t)
	l, err := net.Listen("unix", d.work+"/../activated")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, ok := l.(*net.UnixListener)
	if !ok {
		t.Fatal("no unix socket")
	}
	f, err := u.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sh", "-c", `LISTEN_FDS=1 LISTEN_PID=$$ exec "$0" --state "$1" serve`, treetest.Program(), d.state)
	cmd.Dir, cmd.ExtraFiles = d.work, []*os.File{f}
	d.spawn(cmd)
	d.want(200, nil, "GET", "/healthz", nil)
	d.want(200, nil, "GET", "/v1/sandboxes", nil) // as this user, without a token
}

// TestAnotherUserGetsNoAnswerOnTheSocket: also where the modes would let that user connect. It costs some 0.1 s.
func TestAnotherUserGetsNoAnswerOnTheSocket(t *testing.T) {
	treetest.NeedProgram(t, "curl")
	d := newDesk(t)
	for path, mode := range map[string]os.FileMode{d.socket(): 0o777, d.state: 0o755, filepath.Dir(d.state): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for uid, answered := range map[uint32]bool{0: true, 65534: false} {
		cmd := exec.Command("curl", "-sS", "--unix-socket", d.socket(), "http://snapfs/healthz")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if (err == nil) != answered || !answered && strings.Contains(string(out), "Permission denied") {
			t.Errorf("user %d: %v: %s", uid, err, out)
		}
	}
}

// TestAGroupOpensTheSocketWithATokenOnly costs some 0.2 s.
func TestAGroupOpensTheSocketWithATokenOnly(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "curl")
	d := newDesk(t)
	text, err := token.Open(d.state).New(token.Token{Name: "x", Scopes: []token.Scope{token.Read}})
	if err != nil {
		t.Fatal(err)
	}
	dir := treetest.Dir(t)
	socket := filepath.Join(dir, "group.sock")
	d.listen(Where{Socket: socket, Group: "65533"})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gid    uint32
		header string
		want   string
	}{{65533, "Authorization: Bearer " + text, "200"}, {65533, "X: y", "401"}, {65532, "Authorization: Bearer " + text, "000"}, {0, "X: y", "401"}} {
		cmd := exec.Command("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", c.header, "--unix-socket", socket, "http://snapfs/v1/sandboxes")
		if c.gid != 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: c.gid}}
		}
		out, _ := cmd.Output() // 000 is an error
		if string(out) != c.want {
			t.Errorf("group %d, %.8s: %s, want %s", c.gid, c.header, out, c.want)
		}
	}
}

// TestTLSIsServedUnderTheNamesOfItsCertificate costs some 0.1 s.
func TestTLSIsServedUnderTheNamesOfItsCertificate(t *testing.T) {
	d := newDesk(t)
	cert, key := d.certificate("snapfs.example")
	text, err := token.Open(d.state).New(token.Token{Name: "x", Scopes: token.Scopes()})
	if err != nil {
		t.Fatal(err)
	}
	d.listen(Where{Listen: "127.0.0.1:0", Cert: d.work + "/../cert.pem", Key: key})
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	address := strings.TrimPrefix(d.base, "http://")
	d.token, d.base = text, "https://snapfs.example"
	transport := &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var n net.Dialer
			return n.DialContext(ctx, "tcp", address)
		},
	}
	d.client.Transport = transport
	if r := d.want(200, nil, "GET", "/v1/sandboxes", nil); r.ProtoMajor != 2 {
		t.Error(r.Proto)
	}
	d.want(421, nil, "GET", "/v1/sandboxes", nil, "Host", "evil.example")
	// Without TLS nothing is answered on this address.
	d.client, d.base = &http.Client{Timeout: 10 * time.Second}, "http://"+address
	if r, err := d.try(t.Context(), "GET", "/healthz", nil); err == nil && r.StatusCode == http.StatusOK {
		t.Error("plain HTTP is answered")
	}
	transport.CloseIdleConnections()
}

// certificate makes a certificate for a name and its key, as files.
func (d *desk) certificate(name string) (cert *x509.Certificate, key string) {
	d.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		d.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		d.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		d.t.Fatal(err)
	}
	key = d.work + "/../key.pem"
	if err := errors.Join(
		os.WriteFile(d.work+"/../cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600),
	); err != nil {
		d.t.Fatal(err)
	}
	cert, err = x509.ParseCertificate(der)
	if err != nil {
		d.t.Fatal(err)
	}
	return cert, key
}
