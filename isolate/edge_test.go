package isolate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/mounts"
)

// asBothWithTUN is asBoth with a proxy network and with /dev/net/tun accessible to the ordinary user.
func asBothWithTUN(t *testing.T, test func(t *testing.T, spec Spec)) {
	t.Helper()
	leakless(t)
	if os.Geteuid() == 0 {
		test(t, withEdge(rootSpec(t)))
		treetest.RunAs(t, treetest.User(t), t.Name(), treetest.WithTUN())
		return
	}
	treetest.NeedDevice(t, tunDevice)
	test(t, withEdge(userSpec(t)))
}

func withEdge(spec Spec) Spec {
	spec.Network = NetworkEdge
	spec.Edge = &EdgeAddrs{
		V4: netip.MustParsePrefix("10.99.0.2/24"), Gateway4: netip.MustParseAddr("10.99.0.1"),
		V6: netip.MustParsePrefix("fd99::2/64"), Gateway6: netip.MustParseAddr("fd99::1"),
		MTU: 1400,
	}
	return spec
}

// Every packet that the container sends, of both families and to any address, comes out of Tun, and every
// packet written to Tun arrives.
func TestTunCarriesAllTraffic(t *testing.T) {
	asBothWithTUN(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		tun := container.Tun()
		if tun == nil || container.Tun() != nil {
			t.Fatal("Tun must return the device exactly once")
		}
		defer tun.Close()
		var loud [100]byte
		expire(t, tun, 200*time.Millisecond)
		if n, err := tun.Read(loud[:]); err == nil {
			t.Errorf("the container sends unsolicited packets: %x", loud[:n])
		}
		go echo(tun)
		for _, to := range []string{"10.99.0.1", "192.0.2.7", "fd99::1", "2001:db8::7"} {
			if got := visit(t, container, "udp", net.JoinHostPort(to, "7")); got != "HELLO" {
				t.Errorf("%s answers %q", to, got)
			}
		}
		got := sh(t, container, "ls /sys/class/net | tr '\\n' ' '; cat /sys/class/net/snapfs0/mtu; grep -c . /proc/net/if_inet6; wc -l </proc/net/route")
		if got != "lo snapfs0 1400\n2\n3" { // no address that nobody asked for; two routes and a heading
			t.Errorf("the container has %q", got)
		}
		if got := visit(t, container, "loopback", "127.0.0.1:0"); got != "hello" {
			t.Errorf("its loopback interface: %q", got)
		}
	})
}

// The container's kernel replies to an echo request of the supervisor from the first moment on.
func TestContainerRepliesToPingsAtOnce(t *testing.T) {
	asBothWithTUN(t, func(t *testing.T, spec Spec) {
		for range 10 {
			spec := renewed(t, spec)
			tun := open(t, spec).Tun()
			for _, c := range []struct{ from, to netip.Addr }{
				{spec.Edge.Gateway6, spec.Edge.V6.Addr()},
				{spec.Edge.Gateway4, spec.Edge.V4.Addr()},
			} {
				if _, err := tun.Write(ping(c.from, c.to)); err != nil {
					t.Fatal(err)
				}
				expire(t, tun, 5*time.Second)
				var buf [2000]byte
				n, err := tun.Read(buf[:])
				if err != nil {
					t.Fatalf("%s: %v", c.to, err)
				}
				p := parse(buf[:n])
				if want := map[bool]byte{true: 0, false: 129}[c.to.Is4()]; p.from != c.to || p.to != c.from || len(p.body) < 1 || p.body[0] != want {
					t.Errorf("%s answers %+v", c.to, p)
				}
			}
			tun.Close()
		}
	})
}

// No process in the container can change its network or create another.
func TestContainerCannotChangeItsNetwork(t *testing.T) {
	asBothWithTUN(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		for _, what := range []string{"down", "address", "route", "tun", "node", "packet", "forward"} {
			if got := visit(t, container, what, ""); !strings.HasPrefix(got, "refused") {
				t.Errorf("%s: %s", what, got)
			}
		}
		if level := container.Level(); level.Network != NetworkEdge || !strings.Contains(level.String(), "net;") {
			t.Error(level)
		}
	})
}

func TestEscapesFailWithAProxyNetwork(t *testing.T) {
	asBothWithTUN(t, imprison)
}

// When the supervisor closes Tun, the container has no way out.
func TestClosingTunCutsTheNetwork(t *testing.T) {
	asBothWithTUN(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		if err := container.Tun().Close(); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, container, "ls /sys/class/net; wc -l </proc/net/route"); got != "lo\n1" {
			t.Errorf("%q", got)
		}
		if got := visit(t, container, "udp", "10.99.0.1:7"); !strings.Contains(got, "unreachable") {
			t.Errorf("a packet went to %q", got)
		}
	})
}

func TestProxyNetworkOfOneFamily(t *testing.T) {
	asBothWithTUN(t, func(t *testing.T, spec Spec) {
		for _, c := range []struct{ to, other string }{{"10.99.0.1:7", "[fd99::1]:7"}, {"[fd99::1]:7", "10.99.0.1:7"}} {
			spec := withEdge(renewed(t, spec))
			if c.to[0] == '[' {
				spec.Edge.V4, spec.Edge.Gateway4 = netip.Prefix{}, netip.Addr{}
			} else {
				spec.Edge.V6, spec.Edge.Gateway6 = netip.Prefix{}, netip.Addr{}
			}
			container := open(t, spec)
			tun := container.Tun()
			go echo(tun)
			if got := visit(t, container, "udp", c.to); got != "HELLO" {
				t.Errorf("%s answers %q", c.to, got)
			}
			if got := visit(t, container, "udp", c.other); !strings.Contains(got, "unreachable") {
				t.Errorf("%s answers %q", c.other, got)
			}
			tun.Close()
		}
	})
}

// The container uses the Resolver whether its resolv.conf is a file, a link to a file, or a dangling link.
// Neither the link nor its target is changed.
func TestResolverCoversResolvConf(t *testing.T) {
	asBothWithTUN(t, func(t *testing.T, spec Spec) {
		spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m Mount) bool { return m.Target == "/etc" })
		spec.Resolver = netip.MustParseAddr("fd99::53")
		with := func(etc string) Spec {
			s := renewed(t, spec)
			s.Mounts = append(s.Mounts, Mount{Target: "/etc", Source: etc})
			return s
		}
		for name, place := range map[string]func(path string) error{
			"file":          func(path string) error { return os.WriteFile(path, []byte("nameserver 192.0.2.1\n"), 0o644) },
			"link":          func(path string) error { return os.Symlink("hosts", path) },
			"dangling link": func(path string) error { return os.Symlink("../run/systemd/resolve/stub-resolv.conf", path) },
		} {
			etc := scratch(t)
			write(t, filepath.Join(etc, "hosts"), "127.0.0.1 localhost\n")
			if err := place(filepath.Join(etc, "resolv.conf")); err != nil {
				t.Fatal(err)
			}
			container := open(t, with(etc))
			got := sh(t, container, "cat /etc/resolv.conf; (echo x >/etc/resolv.conf || rm -f /etc/resolv.conf || mv /etc/hosts /etc/resolv.conf) 2>/dev/null || echo kept; cat /etc/hosts; head -c 2 /dev/full | wc -c; ls -A /run | grep -c resolv || true")
			if want := "nameserver fd99::53\nkept\n127.0.0.1 localhost\n2\n0"; got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
			if _, err := container.Exec(t.Context(), shell("getent hosts example.com")); err != nil {
				t.Fatal(err)
			}
			tun := container.Tun()
			expire(t, tun, 5*time.Second)
			var buf [2000]byte
			n, err := tun.Read(buf[:])
			if err != nil {
				t.Fatal(err)
			}
			if p := parse(buf[:n]); p.to != spec.Resolver || p.protocol != unix.IPPROTO_UDP || binary.BigEndian.Uint16(p.body[2:]) != 53 {
				t.Errorf("%s: a name is asked for with %+v", name, p)
			}
			tun.Close()
		}
		var e *errs.Error
		if _, _, err := Start(t.Context(), with(scratch(t)), nil); !errors.Is(err, errs.ErrNotFound) || !errors.As(err, &e) || e.Path != mounts.ResolvPath {
			t.Errorf("without the file: %v", err)
		}
	})
}

// On some machines the device is root's alone; an ordinary user gets an error with a hint, and a best effort
// does not choose another network.
func TestInaccessibleTunDeviceIsAnErrorWithAHint(t *testing.T) {
	if !treetest.AsUser(t) {
		return
	}
	leakless(t)
	if f, err := os.OpenFile(tunDevice, os.O_RDWR, 0); err == nil {
		f.Close() // this machine allows every user
		return
	}
	for _, effort := range []bool{false, true} {
		spec := withEdge(userSpec(t))
		spec.BestEffort = effort
		_, _, err := Start(t.Context(), spec, nil)
		var e *errs.Error
		if !errors.Is(err, errs.ErrDenied) || !errors.As(err, &e) || e.Path != tunDevice || fmt.Sprint(e.Hints) != "[sudo chmod 0666 /dev/net/tun]" {
			t.Errorf("%v %+v", err, e)
		}
	}
}

func TestCheckRefusesInvalidProxyAddresses(t *testing.T) {
	for name, spoil := range map[string]func(s *Spec, e *EdgeAddrs){
		"none":              func(s *Spec, _ *EdgeAddrs) { s.Edge = nil },
		"elsewhere":         func(s *Spec, _ *EdgeAddrs) { s.Network = NetworkNone },
		"no address":        func(_ *Spec, e *EdgeAddrs) { *e = EdgeAddrs{MTU: 1500} },
		"mixed up":          func(_ *Spec, e *EdgeAddrs) { e.V4, e.Gateway4 = e.V6, e.Gateway6 },
		"mapped":            func(_ *Spec, e *EdgeAddrs) { e.V6 = netip.MustParsePrefix("::ffff:1.2.3.4/120") },
		"no gateway":        func(_ *Spec, e *EdgeAddrs) { e.Gateway4 = netip.Addr{} },
		"only a gateway":    func(_ *Spec, e *EdgeAddrs) { e.V6 = netip.Prefix{} },
		"a gateway far off": func(_ *Spec, e *EdgeAddrs) { e.Gateway6 = netip.MustParseAddr("fd98::1") },
		"itself":            func(_ *Spec, e *EdgeAddrs) { e.Gateway4 = e.V4.Addr() },
		"small packets":     func(_ *Spec, e *EdgeAddrs) { e.MTU = 1279 },
		"large packets":     func(_ *Spec, e *EdgeAddrs) { e.MTU = 1 << 16 },
		"a zone":            func(s *Spec, _ *EdgeAddrs) { s.Resolver = netip.MustParseAddr("fe80::1%eth0") },
	} {
		s := withEdge(Spec{Mounts: []Mount{{Target: "/", Source: "/"}}})
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
		spoil(&s, s.Edge)
		if err := s.check(); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Prepare(t.Context(), s, nil); name != "a zone" && !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: begun: %v", name, err)
		}
	}
	if got := withEdge(Spec{}).String(); got != "network edge\nedge 10.99.0.2/24 by 10.99.0.1, fd99::2/64 by fd99::1, MTU 1400\nids same\n" {
		t.Error(got)
	}
}

// BenchmarkEdge measures the cost of a proxy network at the start, compared to no network: both in turn, each
// after the kernel has had the time to remove the last one. On a busy machine the tenth percentile says more
// than the median.
func BenchmarkEdge(b *testing.B) {
	treetest.NeedRoot(b)
	none := rootSpec(b)
	edge := withEdge(none)
	c := Command{Args: []string{"/bin/true"}, Dir: "/"}
	times := map[Network][]time.Duration{}
	for b.Loop() {
		for _, spec := range []Spec{none, edge} {
			settle(b, spec)
			time.Sleep(20 * time.Millisecond)
			began := time.Now()
			container, p, err := Start(context.Background(), spec, &c)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Wait(context.Background()); err != nil {
				b.Fatal(err)
			}
			times[spec.Network] = append(times[spec.Network], time.Since(began))
			if err := container.Close(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}
	for network, all := range times {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2].Seconds()*1000, "ms/"+string(network))
		b.ReportMetric(all[len(all)/10].Seconds()*1000, "ms-p10/"+string(network))
	}
}
