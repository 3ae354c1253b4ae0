//go:build linux

package prove

import (
	"bytes"
	"net"
	"os"
	"strings"
	"time"
)

func planTLS(args []string) (attempt, error) {
	return planFalse(args, "TLS", clientHello, clientHello)
}

// planTLSRecord plans a probe that asks an allowed server, args[0], for a forbidden name, args[1], by TLS in a record
// whose version is not valid. Only some servers ignore that version, so a proxy that rejects it differs from them.
func planTLSRecord(args []string) (attempt, error) {
	return planFalse(args, "TLS in a record of version 2.1", clientHello, func(name string) []byte {
		hello := clientHello(name)
		hello[1] = 2
		return hello
	})
}

func planHTTP(args []string) (attempt, error) {
	return planFalse(args, "HTTP", get, get)
}

// planHTTPBlank plans a probe that asks an allowed server, args[0], for a forbidden name, args[1], by HTTP, with a
// form feed instead of a space in the request line. Only some servers split the line there.
func planHTTPBlank(args []string) (attempt, error) {
	return planFalse(args, "HTTP with a form feed for a space", get, func(name string) []byte {
		return bytes.Replace(get(name), []byte(" "), []byte("\f"), 1)
	})
}

func get(name string) []byte {
	return []byte("GET / HTTP/1.1\r\nHost: " + name + "\r\nConnection: close\r\n\r\n")
}

// planFalse plans a probe that tries to reach a forbidden name, args[1], through an allowed server, args[0].
// It asks the server for the server's own name with the message that proper makes, and then for the forbidden
// name with that of question. how names the trick in the report.
func planFalse(args []string, how string, proper, question func(name string) []byte) (attempt, error) {
	host, port, err := net.SplitHostPort(args[0])
	return attempt{"reach " + args[1] + " by " + how + " through " + args[0], func() outcome {
		to := args[0]
		if at, ok := addressOf(host); ok {
			to = net.JoinHostPort(at, port)
		}
		if n, err := answered(to, proper(host)); err != nil || n == 0 {
			return untried("%s itself does not answer: %v", args[0], err)
		}
		n, err := answered(to, question(args[1]))
		if n > 0 {
			return crossed("a server replied")
		}
		return held("%v", err)
	}}, err
}

// addressOf returns the IPv4 address that the sandbox's name server has for a name; false for none. It does
// not use /etc/hosts, which maps the host's own names to the sandbox's loopback.
func addressOf(name string) (string, bool) {
	text, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		c, err := net.DialTimeout("udp", net.JoinHostPort(fields[1], "53"), patience)
		if err != nil {
			continue
		}
		defer hangUp(c)
		answer := make([]byte, 512)
		if _, err = c.Write(question(name)); err == nil {
			err = c.SetReadDeadline(time.Now().Add(patience))
		}
		if err != nil {
			continue
		}
		if n, err := c.Read(answer); err == nil {
			return firstAddress(answer[:n], len(question(name)))
		}
	}
	return "", false
}

// firstAddress returns the IPv4 address in answer, a reply of a name server to a query of question bytes. A
// reply repeats the query before the addresses (RFC 1035, section 4.1) and refers to the name by a pointer.
func firstAddress(answer []byte, question int) (string, bool) {
	const head = 12 // pointer, type, class, time to live and length
	if len(answer) < question+head+4 || answer[3]&15 != 0 || answer[7] == 0 {
		return "", false
	}
	b := answer[question:]
	if b[0]&0xc0 != 0xc0 || b[2] != 0 || b[3] != 1 || b[10] != 0 || b[11] != 4 {
		return "", false
	}
	return net.IP(b[head : head+4]).String(), true
}

// answered sends message to the server at address over TCP. It returns the length of the first reply in
// bytes, 0 for none, by which probes see whether a forbidden name was reached.
func answered(address string, message []byte) (int, error) {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return 0, why(err)
	}
	defer hangUp(c)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	if _, err := c.Write(message); err != nil {
		return 0, why(err)
	}
	var answer [512]byte
	n, err := c.Read(answer[:])
	if err != nil {
		err = why(err)
	}
	return n, err
}

// clientHello returns a TLS 1.2 ClientHello in a record (RFC 5246, sections 6.2.1 and 7.4.1.2) with the
// extensions that servers expect: the server's name (RFC 6066), curves and signatures. crypto/tls would slow
// down every start of the program.
func clientHello(name string) []byte {
	length := func(n int, b []byte) []byte { // the length of b in n bytes, then b
		head := make([]byte, n)
		for i := range head {
			head[i] = byte(len(b) >> (8 * (n - 1 - i)))
		}
		return append(head, b...)
	}
	extension := func(kind byte, body []byte) []byte { return append([]byte{0, kind}, length(2, body)...) }
	extensions := extension(0, length(2, append([]byte{0}, length(2, []byte(name))...)))
	extensions = append(extensions, extension(10, length(2, []byte{0, 23, 0, 29}))...)
	extensions = append(extensions, extension(11, length(1, []byte{0}))...)
	extensions = append(extensions, extension(13, length(2, []byte{4, 1, 4, 3, 8, 4, 5, 1, 5, 3}))...)
	body := append([]byte{3, 3}, make([]byte, 32)...) // random enough: no key is agreed on
	body = append(body, 0)                            // no session
	body = append(body, length(2, []byte{0xc0, 0x2f, 0xc0, 0x2b, 0xc0, 0x30, 0xc0, 0x2c, 0, 0x9c})...)
	body = append(body, length(1, []byte{0})...) // no compression
	body = append(body, length(2, extensions)...)
	return append([]byte{22, 3, 1}, length(2, append([]byte{1}, length(3, body)...))...)
}
