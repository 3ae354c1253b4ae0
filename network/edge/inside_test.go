//go:build linux

package edge

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/network"
)

// This test binary has three roles: the tests with the proxy; the first process of a network namespace, which
// creates the TUN and starts the processes that the tests ask for; and clients in there (client_test.go).
const (
	partEnv    = "SNAPFS_TEST_EDGE_PART"
	partInside = "inside"
	partClient = "client"
)

func TestMain(m *testing.M) {
	switch os.Getenv(partEnv) {
	case partInside:
		if err := inside(); err != nil {
			fmt.Fprintln(os.Stderr, "inside:", err)
			os.Exit(1)
		}
		return
	case partClient:
		client()
		return
	}
	os.Exit(m.Run())
}

// space is a network namespace with a TUN in it, and a process that starts others there.
type space struct {
	tun *os.File
	pid int
	mu  sync.Mutex
	to  *json.Encoder
	and *json.Decoder
}

type command struct {
	Args, Env []string
	Stdin     []byte
}

type outcome struct {
	Out, Err string
	Status   int
}

// newSpace creates a namespace that ends with the test, for an ordinary user together with a user namespace.
func newSpace(t testing.TB) *space {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), partEnv+"="+partInside)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	t.Cleanup(func() {
		ours.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &space{pid: cmd.Process.Pid, to: json.NewEncoder(ours), and: json.NewDecoder(ours)}
	if s.tun, err = receive(ours); err != nil {
		t.Fatalf("no TUN from inside: %v", err)
	}
	t.Cleanup(func() { s.tun.Close() })
	return s
}

func receive(from *os.File) (*os.File, error) {
	one, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(from.Fd()), one, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) == 0 {
		return nil, fmt.Errorf("no descriptor: %w", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "tun"), nil
}

// run starts a program inside and waits for it.
func (s *space) run(t testing.TB, c command) outcome {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.to.Encode(c); err != nil {
		t.Fatal(err)
	}
	var o outcome
	if err := s.and.Decode(&o); err != nil {
		t.Fatal(err)
	}
	return o
}

// inside is the first process of a namespace.
func inside() error {
	tun, err := makeTUN("tun0")
	if err != nil {
		return err
	}
	if err := resolvers(); err != nil {
		return err
	}
	link := os.NewFile(3, "link")
	if err := unix.Sendmsg(3, []byte{1}, unix.UnixRights(int(tun.Fd())), nil, 0); err != nil {
		return err
	}
	tun.Close()
	requests, answers := json.NewDecoder(link), json.NewEncoder(link)
	for {
		var c command
		err := requests.Decode(&c)
		if err == nil {
			err = answers.Encode(perform(c))
		}
		if errors.Is(err, io.EOF) {
			return nil // the test is over
		}
		if err != nil {
			return err
		}
	}
}

func perform(c command) outcome {
	ctx, stop := context.WithTimeout(context.Background(), 90*time.Second)
	defer stop()
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.Stdin), &out, &errs
	cmd.Env = append(os.Environ(), c.Env...)
	err := cmd.Run()
	var status *exec.ExitError
	o := outcome{Out: out.String(), Err: errs.String()}
	if errors.As(err, &status) {
		o.Status = status.ExitCode()
	} else if err != nil {
		o.Status, o.Err = 127, err.Error()
	}
	return o
}

// resolvers makes the gateway the resolver of this mount namespace.
func resolvers() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	dir, err := os.MkdirTemp("", "edge-test")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(path, []byte("nameserver "+network.Gateway4().Addr().String()+"\noptions timeout:2 attempts:1\n"), 0o644); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return os.NewSyscallError("mount", unix.Mount(path, "/etc/resolv.conf", "", unix.MS_BIND, ""))
}

// makeTUN creates an interface as isolate does: both addresses, both default routes, and loopback.
func makeTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open /dev/net/tun", err)
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, os.NewSyscallError("TUNSETIFF", err)
	}
	for _, up := range []struct {
		name string
		mtu  uint32
	}{{"lo", 0}, {name, network.MTU}} {
		if err := bringUp(up.name, up.mtu); err != nil {
			return nil, err
		}
	}
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	for _, p := range []netip.Prefix{network.Inside4(), network.Inside6()} {
		if err := addAddress(link.Index, p); err != nil {
			return nil, err
		}
	}
	for _, gateway := range []netip.Prefix{network.Gateway4(), network.Gateway6()} {
		if err := addRoute(link.Index, gateway.Addr()); err != nil {
			return nil, err
		}
	}
	if err := taken(network.Inside6().Addr()); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// taken waits until the kernel accepts packets to addr: for IPv6 it adds the route to itself in a work queue
// and drops earlier packets, even without duplicate address detection (net/ipv6/addrconf.c,
// addrconf_dad_start).
func taken(addr netip.Addr) error {
	line := hex.EncodeToString(addr.AsSlice()) + " 80 "
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		routes, err := os.ReadFile("/proc/net/ipv6_route")
		if err != nil {
			return err
		}
		if strings.Contains(string(routes), line) {
			return nil
		}
	}
	return fmt.Errorf("%s is no address of its interface", addr)
}

func bringUp(name string, mtu uint32) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if mtu > 0 {
		request.SetUint32(mtu)
		if err := unix.IoctlIfreq(socket, unix.SIOCSIFMTU, request); err != nil {
			return os.NewSyscallError("SIOCSIFMTU", err)
		}
	}
	request.SetUint16(unix.IFF_UP)
	return os.NewSyscallError("SIOCSIFFLAGS", unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request))
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// attribute returns an attribute of a netlink message (rtnetlink(7)).
func attribute(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, (4-len(b)%4)%4)...)
}

func addAddress(link int, p netip.Prefix) error {
	body := []byte{family(p.Addr()), byte(p.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	body = binary.NativeEndian.AppendUint32(body, uint32(link))
	body = append(body, attribute(unix.IFA_LOCAL, p.Addr().AsSlice())...)
	body = append(body, attribute(unix.IFA_ADDRESS, p.Addr().AsSlice())...)
	return netlink(unix.RTM_NEWADDR, body)
}

func addRoute(link int, gateway netip.Addr) error {
	body := []byte{family(gateway), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	body = append(body, attribute(unix.RTA_GATEWAY, gateway.AsSlice())...)
	body = append(body, attribute(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(link)))...)
	return netlink(unix.RTM_NEWROUTE, body)
}

func removeLink(name string) error {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	body := binary.NativeEndian.AppendUint32(nil, 0)
	body = binary.NativeEndian.AppendUint32(body, uint32(link.Index))
	return netlink(unix.RTM_DELLINK, append(body, make([]byte, 8)...))
}

func netlink(kind uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	message := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	message = append(message, make([]byte, 8)...) // sequence, port
	if err := unix.Sendto(fd, append(message, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < 20 {
		return io.ErrUnexpectedEOF
	}
	if code := int32(binary.NativeEndian.Uint32(answer[16:])); code != 0 {
		return fmt.Errorf("netlink message %d: %w", kind, syscall.Errno(-code))
	}
	return nil
}
