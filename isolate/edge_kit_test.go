package isolate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// visit runs the visitor below in the container and returns its output.
func visit(t *testing.T, container *Container, what, to string) string {
	t.Helper()
	install(t, container)
	out, _ := output(t, container, Command{Args: []string{visitorProgram}, Env: []string{"SNAPFS_TEST_AS=visitor", "WHAT=" + what, "TO=" + to}, Dir: "/"})
	return strings.TrimSpace(out)
}

const visitorProgram = "/tmp/visitor"

// install copies the visitor into the container.
func install(t *testing.T, container *Container) {
	t.Helper()
	if _, st := output(t, container, shell("test -x "+visitorProgram)); st.Code != 0 {
		self, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer self.Close()
		c := shell("cat >" + visitorProgram + " && chmod 755 " + visitorProgram)
		c.Stdin = self
		if out, st := output(t, container, c); st.Code != 0 {
			t.Fatal(out)
		}
	}
}

// visitor makes one attempt on the network of its container.
func visitor() {
	said, err := visits[os.Getenv("WHAT")](os.Getenv("TO"))
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS), errors.Is(err, unix.ENOENT):
		fmt.Fprintln(os.Stdout, "refused:", err)
	case err != nil:
		fmt.Fprintln(os.Stdout, err)
	default:
		fmt.Fprintln(os.Stdout, said)
	}
}

var visits = map[string]func(to string) (string, error){
	"udp": func(to string) (string, error) {
		c, err := net.Dial("udp", to)
		if err != nil {
			return "", err
		}
		return greet(c)
	},
	"serve": serve,
	"deaf":  func(string) (string, error) { return deaf() },
	"loopback": func(to string) (string, error) {
		l, err := net.ListenPacket("udp", to)
		if err != nil {
			return "", err
		}
		c, err := net.Dial("udp", l.LocalAddr().String())
		if err != nil {
			return "", err
		}
		go func() {
			var buf [100]byte
			n, from, _ := l.ReadFrom(buf[:])
			_, _ = l.WriteTo(buf[:n], from)
		}()
		return greet(c)
	},
	"down": func(string) (string, error) {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return "", err
		}
		r, err := unix.NewIfreq(edgeName)
		if err != nil {
			return "", err
		}
		r.SetUint16(0)
		return "it is down", unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
	},
	"address": func(string) (string, error) {
		return netlink(addressMessage(unix.AF_INET, netip.MustParsePrefix("10.98.0.2/24")))
	},
	"route": func(string) (string, error) {
		return netlink(routeMessage(unix.AF_INET, netip.MustParseAddr("10.99.0.9")))
	},
	"tun": func(string) (string, error) {
		_, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
		return "it opens", err
	},
	"node": func(string) (string, error) {
		return "it is made", makesDevice("/tmp/tun", unix.S_IFCHR, 10, 200)
	},
	"packet": func(string) (string, error) {
		_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		return "it opens", err
	},
	"forward": func(string) (string, error) {
		return "it is set", os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
	},
}

func netlink(m []byte) (string, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return "", err
	}
	binary.NativeEndian.PutUint16(m[6:], binary.NativeEndian.Uint16(m[6:])|unix.NLM_F_ACK)
	if _, err := unix.Write(s, m); err != nil {
		return "", err
	}
	var answer [200]byte
	if _, err := unix.Read(s, answer[:]); err != nil {
		return "", err
	}
	if errno := int32(binary.NativeEndian.Uint32(answer[16:])); errno != 0 {
		return "", unix.Errno(-errno)
	}
	return "it is set", nil
}

func greet(c net.Conn) (string, error) {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	if _, err := c.Write([]byte("hello")); err != nil {
		return "", err
	}
	var buf [100]byte
	n, err := c.Read(buf[:])
	return string(buf[:n]), err
}

// echo is a host behind the proxy that replies to every greeting, in capitals.
func echo(tun *os.File) {
	var buf [2000]byte
	for {
		if tun.SetReadDeadline(time.Time{}) != nil {
			return
		}
		n, err := tun.Read(buf[:])
		if err != nil {
			return
		}
		p := parse(buf[:n])
		if p.protocol != unix.IPPROTO_UDP || string(p.body[8:]) != "hello" {
			continue
		}
		udp := append([]byte{p.body[2], p.body[3], p.body[0], p.body[1], 0, 13, 0, 0}, "HELLO"...)
		if _, err := tun.Write(build(p.to, p.from, unix.IPPROTO_UDP, udp, 6)); err != nil {
			return
		}
	}
}

func ping(from, to netip.Addr) []byte {
	if from.Is4() {
		return build(from, to, unix.IPPROTO_ICMP, []byte{8, 0, 0, 0, 0, 1, 0, 1}, 2)
	}
	return build(from, to, unix.IPPROTO_ICMPV6, []byte{128, 0, 0, 0, 0, 1, 0, 1}, 2)
}

type packet struct {
	from, to netip.Addr
	protocol byte
	body     []byte
}

// parse decodes an IP packet without options.
func parse(b []byte) packet {
	if b[0]>>4 == 4 {
		return packet{netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9], b[20:]}
	}
	return packet{netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6], b[40:]}
}

// build encodes one, with the checksum of the body at its offset sum.
func build(from, to netip.Addr, protocol byte, body []byte, sum int) []byte {
	pseudo := append(from.AsSlice(), to.AsSlice()...)
	pseudo = append(pseudo, 0, protocol, 0, byte(len(body)))
	if protocol == unix.IPPROTO_ICMP {
		pseudo = nil // RFC 792 has none
	}
	binary.BigEndian.PutUint16(body[sum:], checksum(append(pseudo, body...)))
	if from.Is4() {
		head := []byte{0x45, 0, 0, byte(20 + len(body)), 0, 0, 0, 0, 64, protocol, 0, 0}
		head = append(append(head, from.AsSlice()...), to.AsSlice()...)
		binary.BigEndian.PutUint16(head[10:], checksum(head))
		return append(head, body...)
	}
	head := []byte{0x60, 0, 0, 0, 0, byte(len(body)), protocol, 64}
	return append(append(append(head, from.AsSlice()...), to.AsSlice()...), body...)
}

func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i, v := range b {
		sum += uint32(v) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func expire(t *testing.T, f *os.File, after time.Duration) {
	t.Helper()
	if err := f.SetReadDeadline(time.Now().Add(after)); err != nil {
		t.Fatal(err)
	}
}
