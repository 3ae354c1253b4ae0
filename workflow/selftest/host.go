package selftest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/errs"
)

// noSuchName is a host name that no network rule of a sandbox allows and nobody owns. The self-test's
// programs in a sandbox (probes) try to reach it.
const noSuchName = "snapfs-prove.example"

// A probeHost listens on the host, outside any sandbox, for connections that the self-test's programs in a
// sandbox (probes) attempt although they are forbidden. port is its port on loopback, ipv4 and ipv6 are its
// addresses that other machines can reach, if there are any, and resolver is a name server that answers every
// query.
type probeHost struct {
	port, name, ipv4, ipv6, resolver string
	open                             []io.Closer
	// served is the address of a server with a host name, which rules let a sandbox reach; ""
	// if the host has no name.
	served, rules string
	// web is the address of an HTTP server with the same host name, webName. webRules let a sandbox reach it,
	// and webRulesHTTP only by the requests that the probes find allowed.
	web, webName, webRules, webRulesHTTP string
}

func (h *probeHost) close() {
	for _, l := range h.open {
		l.Close() //nolint:errcheck // nobody is connected
	}
}

func (h *probeHost) listen(kind, addr string) (net.Addr, error) {
	l, err := net.Listen(kind, addr)
	if err != nil {
		return nil, errs.With("listening for probes", addr, err)
	}
	h.open = append(h.open, l)
	return l.Addr(), nil
}

func listenForProbes() (*probeHost, error) {
	h := &probeHost{name: "snapfs-prove-" + catalog.NewID(), ipv6: "[2001:db8::1]:443"} // for a host without IPv6
	at, err := h.listen("tcp", "127.0.0.1:0")
	if err == nil {
		h.ipv4 = at.String()
		_, h.port, err = net.SplitHostPort(h.ipv4)
	}
	if err == nil {
		_, err = h.listen("unix", "@"+h.name)
	}
	if err == nil {
		h.listenOutside()
		host, _, _ := net.SplitHostPort(h.ipv4) // built from both above
		err = h.answerQuestions(host)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// listenOutside listens at the host's addresses that other machines can reach, if it has any. The self-test's
// programs in a sandbox (probes) try to connect to them.
func (h *probeHost) listenOutside() {
	if at, err := h.listen("tcp", "[::1]:0"); err == nil {
		h.ipv6 = at.String()
	}
	found := map[bool]bool{} // by whether it is IPv4
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || !ip.IP.IsGlobalUnicast() || found[ip.IP.To4() != nil] {
			continue
		}
		at, err := h.listen("tcp", net.JoinHostPort(ip.IP.String(), "0"))
		if err != nil {
			continue
		}
		four := ip.IP.To4() != nil
		if found[four] = true; four {
			h.ipv4 = at.String()
		} else {
			h.ipv6 = at.String()
		}
	}
}

// serve starts a server at an address of the host that has a name, and sets h.rules to network rules by which
// a sandbox may reach that name. Probes in a sandbox then try to reach the server under a forbidden name, for
// example in a TLS greeting. Without such an address it does nothing.
func (h *probeHost) serve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	own, _ := os.Hostname()
	for _, name := range []string{own, "ip6-localhost", "ip6-loopback"} { // the proxy never resolves localhost
		addrs, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil || name == "" || name == "localhost" {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(addrs[0], "0"))
		if err != nil {
			continue // it leads elsewhere
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		at := l.Addr().String()
		rules, _, err := hostfs.NetworkRules(hostfs.AllowNet + name + ":" + port + "," + at)
		if err != nil {
			l.Close() //nolint:errcheck // nobody is connected
			continue
		}
		h.open = append(h.open, l)
		h.served, h.rules = name+":"+port, rules.String()
		go answerAll(l)
		h.serveWeb(name, addrs[0])
		return
	}
}

// serveWeb starts an HTTP server at the address addr of the host, which has this name, and sets the fields of h
// about it. Without such a server it does nothing.
func (h *probeHost) serveWeb(name, addr string) {
	l, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		return
	}
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	h.open = append(h.open, l)
	h.web, h.webName = name+":"+port, name
	h.webRules = h.web + "," + at
	h.webRulesHTTP = "GET http://" + h.web + prove.HTTPRulePath + "," + at
	go answerRequests(l)
}

// answerRequests answers one HTTP request on each connection on the listener l, whatever it asks for, as a
// provider of language models does that reports the tokens used. It returns when l is closed.
func answerRequests(l net.Listener) {
	body := fmt.Sprintf(`{"type":"message","usage":{"input_tokens":%d,"output_tokens":0}}`, prove.ProofUsage)
	reply := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()                          //nolint:errcheck // all was said
			c.SetDeadline(time.Now().Add(proofTime)) //nolint:errcheck // then it stays until the other goes
			if readRequest(bufio.NewReader(c)) == nil {
				io.WriteString(c, reply) //nolint:errcheck // whoever wants it listens
			}
		}()
	}
}

// readRequest reads an HTTP request with its body, whose length its header says, and forgets it.
func readRequest(r *bufio.Reader) error {
	length := 0
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return err
			}
		}
		if name == "" {
			_, err := r.Discard(length)
			return err
		}
	}
}

// answerAll answers the first message of each connection on the listener l with a TLS alert. By the answer a
// self-test's program in a sandbox, which tries to connect although that is forbidden, knows that it got
// through. It returns when l is closed.
func answerAll(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()                          //nolint:errcheck // all was said
			c.SetDeadline(time.Now().Add(proofTime)) //nolint:errcheck // then it stays until the other goes
			if _, err := c.Read(make([]byte, 4096)); err == nil {
				c.Write([]byte{21, 3, 3, 0, 2, 2, 40}) //nolint:errcheck // whoever wants it listens
			}
		}()
	}
}

// answerQuestions starts a name server at host that echoes every DNS query. A probe, the self-test's program
// in a sandbox, must not receive even that.
func (h *probeHost) answerQuestions(host string) error {
	c, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		return errs.With("listening for probes", host, err)
	}
	h.open = append(h.open, c)
	h.resolver = c.LocalAddr().String()
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			c.WriteTo(buf[:n], from) //nolint:errcheck // lost as any packet may be
		}
	}()
	return nil
}
