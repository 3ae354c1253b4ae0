//go:build linux

package prove

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a probe waits for a connection or a reply from the network. A probe that waits longer
// counts as held back by the isolation.
const patience = 3 * time.Second

func networkProbes() []Probe {
	return []Probe{
		{Name: "name", Args: []string{"HOST:PORT"}, plan: planName},
		{Name: "ipv4", Args: []string{"ADDRESS:PORT"}, plan: planAddress},
		{Name: "ipv6", Args: []string{"[ADDRESS]:PORT"}, plan: planAddress},
		{Name: "resolver", Args: []string{"ADDRESS:PORT", "NAME"}, plan: planResolver},
		{Name: "tls-name", Args: []string{"HOST:PORT", "FALSE-NAME"}, plan: planTLS},
		{Name: "http-name", Args: []string{"HOST:PORT", "FALSE-NAME"}, plan: planHTTP},
		{Name: "tls-record", Args: []string{"HOST:PORT", "FALSE-NAME"}, plan: planTLSRecord},
		{Name: "http-blank", Args: []string{"HOST:PORT", "FALSE-NAME"}, plan: planHTTPBlank},
		{Name: "metadata", plan: planMetadata},
		{Name: "loopback", Args: []string{"PORT"}, plan: planLoopback},
		{Name: "abstract-socket", Args: []string{"NAME"}, plan: planAbstract},
		{Name: "host-socket", Args: []string{"PATH..."}, plan: planSockets},
	}
}

// reach is a probe that tries to connect to each address. An established connection means that isolation
// failed, whatever the server then sends.
func reach(addresses ...string) outcome {
	var reasons []string
	for _, a := range addresses {
		c, err := net.DialTimeout("tcp", a, patience)
		if err == nil {
			hangUp(c)
			return crossed("%s: connected", a)
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", a, why(err)))
	}
	return held("%s", strings.Join(reasons, "; "))
}

func hangUp(c net.Conn) { c.Close() } //nolint:errcheck // the connection is no longer needed

// why removes the operation and address from a network error, because the report in which a probe states the
// error has them already.
func why(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err
}

// planName plans a probe that tries to resolve the forbidden name in args[0] ("host:port") and to connect to
// it. An answer other than a loopback address already counts as failed isolation; to a loopback address the
// probe then tries to connect.
func planName(args []string) (attempt, error) {
	host, port, err := net.SplitHostPort(args[0])
	return attempt{"reach " + args[0] + " by its name", func() outcome {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		found, err := (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip", host)
		if err != nil {
			return held("%v", err)
		}
		var all []string
		for _, a := range found[:min(len(found), 3)] {
			if !a.IsLoopback() {
				return crossed("the answer is %s", a.Unmap())
			}
			all = append(all, net.JoinHostPort(a.Unmap().String(), port))
		}
		return reach(all...)
	}}, err
}

func planAddress(args []string) (attempt, error) {
	_, err := netip.ParseAddrPort(args[0])
	return attempt{"reach " + args[0] + " by its address", func() outcome { return reach(args[0]) }}, err
}

// planMetadata plans a probe that tries to connect to the metadata services of clouds, which give out
// credentials of the host.
func planMetadata([]string) (attempt, error) {
	return attempt{"reach the cloud's metadata", func() outcome {
		return reach("169.254.169.254:80", "[fd00:ec2::254]:80", "100.100.100.200:80")
	}}, nil
}

// planLoopback plans a probe that tries to connect to a service at the port args[0] of the host's loopback
// interface.
func planLoopback(args []string) (attempt, error) {
	_, err := number(args[0])
	return attempt{"reach the host's service on port " + args[0], func() outcome {
		return reach("127.0.0.1:"+args[0], "[::1]:"+args[0])
	}}, err
}

func planAbstract(args []string) (attempt, error) {
	return attempt{"reach the host's abstract socket @" + args[0], func() outcome {
		c, err := net.DialTimeout("unix", "@"+args[0], patience)
		if err != nil {
			return held("%v", why(err))
		}
		hangUp(c)
		return crossed("connected")
	}}, nil
}

// planSockets plans a probe that tries to connect to Unix sockets of the host's programs, at the paths args.
func planSockets(args []string) (attempt, error) {
	return attempt{"reach the host's sockets " + strings.Join(args, ", "), func() outcome {
		var reached []string
		for _, path := range args {
			if what := listens(path); what != "" {
				reached = append(reached, path+": "+what)
			}
		}
		if len(reached) > 0 {
			return crossed("%s", strings.Join(reached, "; "))
		}
		return held("no program of the host listens at them")
	}}, nil
}

// listens tries to connect to the Unix socket at path and returns a text that says how it can be reached, or
// "" if it cannot. EPROTOTYPE counts as reached: the kernel compares the types of the sockets only once it
// has found one. With another error, no program can be reached there.
func listens(path string) string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	if dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_CLOEXEC, 0); err == nil { // an address has 108 bytes
		defer unix.Close(dir)
		path = "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)
	}
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err {
	case nil:
		return "connected"
	case unix.EAGAIN: // its queue is full
		return "it listens"
	case unix.EPROTOTYPE:
		return "a socket of another type is there"
	}
	return ""
}

func planResolver(args []string) (attempt, error) {
	server, err := netip.ParseAddrPort(args[0])
	if err == nil && (args[1] == "" || len(args[1]) > 200) {
		err = fmt.Errorf("%q is no name", args[1])
	}
	return attempt{"ask the name server " + args[0] + " for " + args[1], func() outcome {
		return ask(net.UDPAddrFromAddrPort(server), question(args[1]))
	}}, err
}

// ask is a probe that sends packet, a query, to a name server that it must not reach, up to three times
// because packets may be lost. The isolation is crossed if an answer comes.
func ask(server *net.UDPAddr, packet []byte) outcome {
	c, err := net.DialUDP("udp", nil, server)
	if err != nil {
		return held("%v", why(err))
	}
	defer hangUp(c)
	var answer [512]byte
	for range 3 {
		if _, err = c.Write(packet); err == nil {
			if err := c.SetDeadline(time.Now().Add(patience / 3)); err != nil {
				return untried("%v", err)
			}
			var n int
			if n, err = c.Read(answer[:]); err == nil {
				return crossed("%d bytes came back", n)
			}
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, unix.ECONNREFUSED) {
			break
		}
	}
	return held("%v", why(err))
}

// question returns the packet that asks a name server for the IPv4 address of a name (RFC 1035, section 4).
func question(name string) []byte {
	q := []byte{0x51, 0x6e, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0} // id, recursion desired, one question
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	return append(q, 0, 0, 1, 0, 1)
}
