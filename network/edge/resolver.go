//go:build linux

package edge

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/snapfs/snapfs/network"
)

const (
	dnsPort = 53
	// dnsTTL is the time to live of DNS replies to the sandbox, in seconds. An address stands for its name as
	// long as the proxy runs, unless the table of names is full. A client that caches an address longer does
	// no harm: the proxy checks the rules and the server name of each connection.
	dnsTTL = 60
	// dnsConns is how many TCP connections to the proxy's name server are served at once, further ones are
	// closed; dnsTime is how long each may wait for data.
	dnsConns = 64
	dnsTime  = 10 * time.Second
)

// resolve starts the sandbox's name server: it answers DNS queries at the gateway's addresses, by UDP and
// TCP.
func (e *Edge) resolve() error {
	slots := make(chan struct{}, dnsConns)
	for _, p := range []netip.Prefix{network.Gateway4(), network.Gateway6()} {
		at := full(netip.AddrPortFrom(p.Addr(), dnsPort))
		packets, err := gonet.DialUDP(e.stack, &at, nil, protocolOf(p.Addr()))
		if err != nil {
			return err
		}
		e.spawn(func() { e.answerPackets(packets) })
		streams, err := gonet.ListenTCP(e.stack, at, protocolOf(p.Addr()))
		if err != nil {
			return err
		}
		e.spawn(func() { e.answerStreams(streams, slots) })
		e.spawn(func() { // ends the two goroutines above
			<-e.ctx.Done()
			drop(packets)
			drop(streams)
		})
	}
	return nil
}

// answerPackets answers the DNS queries that arrive at conn, one UDP port. There may be several from one
// client, as resolvers send A and AAAA queries together.
func (e *Edge) answerPackets(conn *gonet.UDPConn) {
	buf := make([]byte, 4096)
	for {
		n, from, err := conn.ReadFrom(buf)
		if e.ctx.Err() != nil {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // an unreachable port of an earlier client; no other error is known
			continue
		}
		if answer := e.answer(buf[:n]); answer != nil {
			_, _ = conn.WriteTo(answer, from) // a lost reply is like any lost packet
		}
	}
}

func (e *Edge) answerStreams(l *gonet.TCPListener, slots chan struct{}) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // the listener is closed
		}
		select {
		case slots <- struct{}{}:
			if !e.spawn(func() { e.answerStream(conn); <-slots }) {
				drop(conn)
			}
		default:
			drop(conn)
		}
	}
}

// answerStream answers DNS queries over the TCP connection conn (RFC 1035, 4.2.2), where each message follows
// its length, and closes it.
func (e *Edge) answerStream(conn net.Conn) {
	defer drop(conn)
	stop := afterDone(e.ctx, func() { drop(conn) })
	defer stop()
	for {
		if err := conn.SetDeadline(time.Now().Add(dnsTime)); err != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		answer := e.answer(question)
		if answer == nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answer returns the reply to message, a DNS query, or nil if it is not a query.
func (e *Edge) answer(message []byte) []byte {
	var p dnsmessage.Parser
	asked, err := p.Start(message)
	if err != nil || asked.Response {
		return nil
	}
	e.queries.Add(1)
	head := dnsmessage.Header{ID: asked.ID, Response: true, OpCode: asked.OpCode, RecursionDesired: asked.RecursionDesired, RecursionAvailable: true}
	questions, err := p.AllQuestions()
	switch {
	case asked.OpCode != 0:
		head.RCode = dnsmessage.RCodeNotImplemented
		questions = nil
	case err != nil || len(questions) != 1:
		head.RCode = dnsmessage.RCodeFormatError
		questions = nil
	}
	var addr netip.Addr
	if questions != nil {
		addr, head.RCode = e.question(questions[0])
	}
	return pack(head, questions, addr)
}

// question decides on one question of a DNS query and returns an address and a response code. An allowed name
// has addresses and no other records: none with keys for a hidden server name (HTTPS, SVCB), none that refers
// to other names.
func (e *Edge) question(q dnsmessage.Question) (netip.Addr, dnsmessage.RCode) {
	name := network.Fold(q.Name.String())
	ev := network.Event{Kind: network.DNS, Name: printable(name)}
	if q.Class != dnsmessage.ClassINET {
		return netip.Addr{}, dnsmessage.RCodeRefused
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		ev.Why = "localhost is the sandbox's own"
		e.refuse(ev)
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	if b := e.options.Broker; b != nil && b.Labelled() {
		if ev.Why = b.HasLabelled([]byte(q.Name.String() + "\n" + strings.ReplaceAll(q.Name.String(), ".", ""))); ev.Why != "" {
			ev.Name = "[labelled]" // the name is in the log
			e.refuse(ev)
			return netip.Addr{}, dnsmessage.RCodeNameError
		}
	}
	rule, ok := "", network.ValidName(name)
	if ok {
		rule, ok = e.Rules().Resolves(name)
	}
	if !ok && e.service(name) {
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	if !ok && e.asksAboutName(name) {
		ok, ev.Why = true, "no rule allows it: a person is asked about each connection"
	}
	if !ok {
		ev.Why = "no rule allows " + ev.Name
		e.refuse(ev)
		return netip.Addr{}, dnsmessage.RCodeNameError
	}
	four, six := e.names.addrs(name)
	ev.Allowed, ev.Rule, ev.Addr = true, rule, four
	e.events.put(ev)
	switch q.Type {
	case dnsmessage.TypeA:
		return four, dnsmessage.RCodeSuccess
	case dnsmessage.TypeAAAA:
		return six, dnsmessage.RCodeSuccess
	}
	return netip.Addr{}, dnsmessage.RCodeSuccess
}

// service reports whether a DNS query is for a service record of a name that has an address inside, such as
// _http._tcp.site.example (RFC 2782), which package managers query before the name itself. The reply is that
// there is none, and no event reports the query.
func (e *Edge) service(name string) bool {
	kind, rest, _ := strings.Cut(name, ".")
	protocol, host, _ := strings.Cut(rest, ".")
	if !strings.HasPrefix(kind, "_") || protocol != "_tcp" && protocol != "_udp" {
		return false
	}
	_, ok := e.Rules().Resolves(host)
	return (ok || e.asksAboutName(host)) && network.ValidName(host)
}

// printable replaces characters in a name that could control the terminal on which it is
// shown.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '?'
		}
		return r
	}, name)
}

// pack encodes a DNS reply with this header and these questions, and with the address addr as the answer if
// it is valid.
func pack(head dnsmessage.Header, questions []dnsmessage.Question, addr netip.Addr) []byte {
	message := dnsmessage.Message{Header: head, Questions: questions}
	if addr.IsValid() {
		q := questions[0]
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: dnsTTL}}
		if addr.Is4() {
			r.Body = &dnsmessage.AResource{A: addr.As4()}
		} else {
			r.Body = &dnsmessage.AAAAResource{AAAA: addr.As16()}
		}
		message.Answers = append(message.Answers, r)
	}
	b, err := message.Pack()
	if err != nil {
		return nil
	}
	return b
}
