package prove

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain makes the test binary act as the program of a probe: "prove NAME ARGUMENT ...". Arguments before
// that are services to run beside the probe.
func TestMain(m *testing.M) {
	if os.Getenv("SNAPFS_TEST_AS") != "prover" {
		os.Exit(m.Run())
	}
	args := os.Args[1:]
	for len(args) > 0 && args[0] != "prove" {
		if err := serve(args[0]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(9)
		}
		args = args[1:]
	}
	os.Exit(Run(args[1], args[2:], os.Stdout))
}

// more limits this process to that many bytes of memory more than it has: an absolute limit would have to
// include the runtime's memory.
func more(bytes string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "VmData:")
	var has, allowed uint64
	if _, err := fmt.Sscan(rest, &has); err != nil {
		return err
	}
	if _, err := fmt.Sscan(bytes, &allowed); err != nil {
		return err
	}
	n := has<<10 + allowed
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: n, Max: n})
}

// serve starts a service: data://BYTES, see more; tcp://ADDRESS, which accepts connections; udp://ADDRESS,
// which echoes; tls://ADDRESS, which replies only if the message contains the name "localhost";
// gullible://ADDRESS, which replies to everything; web://ADDRESS, which answers each HTTP request;
// rules://ADDRESS, which refuses all of them but GET HTTPRulePath; budget://ADDRESS, which refuses all but the first; labels://ADDRESS, which
// refuses those with the word labelled.
func serve(what string) error {
	kind, address, _ := strings.Cut(what, "://")
	if kind == "data" {
		return more(address)
	}
	if kind == "udp" {
		c, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		go func() {
			var b [512]byte
			for {
				n, from, err := c.ReadFrom(b[:])
				if err != nil {
					return
				}
				_, _ = c.WriteTo(b[:n], from)
			}
		}()
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() {
		for accepted := 0; ; accepted++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 2000)
				n, _ := c.Read(b)
				if kind == "gullible" || kind == "tls" && bytes.Contains(b[:n], []byte("localhost")) {
					_, _ = c.Write([]byte{22, 3, 3, 0, 1, 2})
				}
				status := "200 OK"
				switch {
				case kind == "rules" && !bytes.HasPrefix(b[:n], []byte("GET "+HTTPRulePath+" ")):
					status = "403 Forbidden"
				case kind == "labels" && bytes.Contains(b[:n], []byte("labelled")):
					status = "403 Forbidden"
				case kind == "aws" && (accepted > 0 || !bytes.Contains(b[:n], []byte("Signature="))):
					status = "403 Forbidden"
				case kind == "budget" && accepted > 0:
					status = "429 Too Many Requests"
				}
				if kind == "web" || kind == "rules" || kind == "budget" || kind == "labels" || kind == "aws" {
					_, _ = c.Write([]byte("HTTP/1.1 " + status + "\r\n\r\n"))
				}
			}()
		}
	}()
	return nil
}

// bare runs a probe on this machine without any isolation.
func bare(t *testing.T, name string, args ...string) Report {
	t.Helper()
	return prover(t, exec.Command("/proc/self/exe", append([]string{"prove", name}, args...)...), name)
}

// beside runs a probe in a network namespace, with services in it.
func beside(t *testing.T, services []string, name string, args ...string) Report {
	t.Helper()
	script := `ip link set lo up && ip address add 169.254.169.254/32 dev lo && exec "$0" "$@"`
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"-n", "sh", "-c", script, binary}, services...)
	return prover(t, exec.Command("unshare", append(append(all, "prove", name), args...)...), name)
}

func prover(t *testing.T, c *exec.Cmd, name string) Report {
	t.Helper()
	c.Env = append(os.Environ(), "SNAPFS_TEST_AS=prover")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	r := Read(name, out, ended != nil && !ended.Exited())
	if (err == nil) != r.Held && (ended == nil || ended.Exited()) {
		t.Errorf("%+v: %v\n%s", r, err, &stderr)
	}
	return r
}
