//go:build linux

package edge

import (
	"encoding/binary"
	"fmt"
)

// Numbers of TLS record types (RFC 8446, 5.1), handshake messages and extensions that the proxy must
// recognise in a sandbox's connections.
const (
	recordCipher    = 20 // change_cipher_spec
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23
	recordHeartbeat = 24 // RFC 6520

	messageHello = 1

	extServerName = 0
	extEarlyData  = 42
	extECH        = 0xfe0d // RFC 9849
	extESNI       = 0xffce // its predecessor
)

const recordHead = 5

// A helloReader assembles the ClientHello of TLS that a sandbox's client sends, for the check of its server
// name; it may be split over several records.
type helloReader struct {
	scan    int    // how many uninspected bytes were scanned
	message []byte // content of the records so far
	early   bool   // early data may precede a second ClientHello
	skip    int    // bytes left of a record that passes
}

// sniffRecord detects a ClientHello in b, a client's first bytes, that look like a record of TLS. Some
// servers ignore the record's version, or skip alerts before the ClientHello, so such bytes are refused. No
// server of TLS takes a version of 16 or more, nor a record after bytes of its own. The result is false if
// the inspector needs more bytes or refuses these.
func sniffRecord(j *inspector, b []byte) bool {
	switch {
	case len(b) < 3 && (len(b) < 2 || b[1] < 16):
		return false
	case b[1] >= 16:
		return other(j)
	case b[0] != recordHandshake:
		return j.refuse("TLS that does not begin with a ClientHello" + j.askedName())
	case !recordVersion(b):
		return j.refuse(fmt.Sprintf("a TLS record of version %d.%d", b[1], b[2]) + j.askedName())
	}
	j.http.phase = phaseTLS
	j.state = hello
	return true
}

// recordVersion reports whether a record with a ClientHello has one of the versions 3.1 to 3.3,
// which all clients send (RFC 8446, 5.1).
func recordVersion(b []byte) bool { return b[1] == 3 && b[2] >= 1 && b[2] <= 3 }

// askedName returns the server name in refused bytes of TLS, as text to be added to the reason of the
// refusal, or "" if the bytes so far have none.
func (j *inspector) askedName() string {
	var message []byte
	for b := j.rest(); len(b) > recordHead; {
		size := min(int(binary.BigEndian.Uint16(b[3:])), len(b)-recordHead)
		if b[0] == recordHandshake {
			message = append(message, b[recordHead:recordHead+size]...)
		}
		b = b[recordHead+size:]
	}
	if len(message) < 4 || message[0] != messageHello {
		return ""
	}
	all := extensionsOf(message[4:])
	for len(all.b) > 0 {
		kind, body := all.number(2), all.field(2)
		if name, ok := serverName(body); ok && kind == extServerName && !all.bad {
			return ", for the server name " + short(name)
		}
	}
	return ""
}

// hello is the state in which a connection's inspector assembles the sandbox's ClientHello of TLS, and checks
// its server name when it is complete. It returns false if it needs more bytes or refuses the connection.
func hello(j *inspector) bool {
	t := &j.tls
	b := j.rest()[t.scan:]
	if len(b) < recordHead {
		return false
	}
	size := int(binary.BigEndian.Uint16(b[3:]))
	if b[0] != recordHandshake || !recordVersion(b) || size == 0 || size > 1<<14 {
		return j.refuse("a TLS handshake that cannot be read" + j.askedName())
	}
	if len(b) < recordHead+size {
		return false
	}
	t.message = append(t.message, b[recordHead:recordHead+size]...)
	t.scan += recordHead + size
	if len(t.message) < 4 {
		return true
	}
	need := 4 + int(t.message[1])<<16 + int(t.message[2])<<8 + int(t.message[3])
	switch {
	case t.message[0] != messageHello:
		return j.refuse("a TLS handshake that does not begin with a ClientHello")
	case need > maxHeld:
		return j.refuse("a ClientHello longer than is read")
	case len(t.message) < need:
		return true
	case len(t.message) > need:
		return j.refuse("a ClientHello with more behind it")
	}
	if !inspectHello(j, t.message[4:]) {
		return false
	}
	j.ok += t.scan
	t.scan, t.message = 0, nil
	j.state = afterHello
	return true
}

// afterHello is the state of a connection's inspector after a ClientHello of TLS: it checks a second one,
// which a server may request (RFC 8446, 4.1.4) and which could have another server name. It returns true if
// more of the bytes at hand can be checked.
func afterHello(j *inspector) bool {
	t := &j.tls
	if t.skip > 0 {
		n := min(t.skip, len(j.rest()))
		t.skip -= n
		j.ok += n
		return t.skip == 0 && len(j.rest()) > 0
	}
	b := j.rest()
	if len(b) < recordHead {
		return false
	}
	size := int(binary.BigEndian.Uint16(b[3:]))
	switch {
	case b[0] == recordCipher, b[0] == recordAlert, b[0] == recordData && t.early:
		t.skip = recordHead + size
		return true
	case b[0] == recordHandshake:
		if len(b) == recordHead && size > 0 {
			return false
		}
		if size < 4 || b[recordHead] == messageHello {
			j.state = hello
			return true
		}
	}
	j.state = opaque
	return true
}

// A cursor parses binary data of TLS, such as a ClientHello, whose fields have a length prefix. The field bad
// is set when the data is too short.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.bad = true
		return nil
	}
	field := c.b[:n]
	c.b = c.b[n:]
	return field
}

// number parses an unsigned big-endian number of n bytes of a TLS message, and moves the cursor behind it.
func (c *cursor) number(n int) int {
	v := 0
	for _, b := range c.take(n) {
		v = v<<8 | int(b)
	}
	return v
}

// field parses a field of a TLS message that a length of n bytes precedes, and returns a cursor over the
// field's content.
func (c *cursor) field(n int) *cursor { return &cursor{b: c.take(c.number(n)), bad: c.bad} }

// extensionsOf returns the extensions of message, a ClientHello (RFC 8446, 4.1.2) without its header.
func extensionsOf(message []byte) *cursor {
	c := &cursor{b: message}
	c.take(2 + 32) // version, random
	c.field(1)     // session
	c.field(2)     // ciphers
	c.field(1)     // compression
	extensions := &cursor{}
	if len(c.b) > 0 {
		extensions = c.field(2)
	}
	extensions.bad = extensions.bad || c.bad || len(c.b) > 0
	return extensions
}

// inspectHello reports whether message, a TLS ClientHello without its header, may pass, and otherwise refuses
// the connection: its server name must be the allowed one. A missing name passes only if the rule allows
// that, and an encrypted hello only if its outer name is right and the rule allows it (+ech).
func inspectHello(j *inspector, message []byte) bool {
	extensions := extensionsOf(message)
	if extensions.bad {
		return j.refuse("a ClientHello that cannot be read")
	}
	name, found, hidden := "", false, false
	for len(extensions.b) > 0 {
		kind := extensions.number(2)
		body := extensions.field(2)
		switch {
		case extensions.bad || body.bad:
			return j.refuse("a ClientHello that cannot be read")
		case kind == extESNI:
			return j.refuse("an encrypted server name, which cannot be read")
		case kind == extECH:
			hidden = true
		case kind == extEarlyData:
			j.tls.early = true
		case kind == extServerName:
			if found {
				return j.refuse("two server names")
			}
			if name, found = serverName(body); !found {
				return j.refuse("a server name that cannot be read")
			}
		}
	}
	switch {
	case !found && j.noSNI && !hidden:
		return true
	case !found:
		return j.refuse("no server name")
	case !j.same(name):
		return j.mismatch("the server name", name)
	case hidden:
		return j.allowECH()
	}
	return true
}

// Reasons for refusing an encrypted ClientHello. hiddenHint suggests the option that allows
// it, because browsers always send one.
const (
	hiddenName = "an encrypted client hello, whose server name cannot be read"
	hiddenHint = "; a rule with +ech lets it pass"
	hiddenWhy  = hiddenName + hiddenHint
)

// allowECH reports whether to allow a ClientHello with the right outer name and an encrypted inner one. If
// not, it refuses the connection.
func (j *inspector) allowECH() bool {
	why := hiddenWhy
	if j.echRefusal != nil {
		why = j.echRefusal()
	}
	return why == "" || j.refuse(why)
}

// serverName parses body, the server_name extension of a ClientHello (RFC 6066, 3), and returns its one name.
// It returns false for another form.
func serverName(body *cursor) (string, bool) {
	list := body.field(2)
	if body.bad || list.bad || len(body.b) > 0 || list.number(1) != 0 {
		return "", false
	}
	name := list.field(2)
	if list.bad || name.bad || len(list.b) > 0 || len(name.b) == 0 {
		return "", false
	}
	return string(name.b), true
}
