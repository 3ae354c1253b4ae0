//go:build linux

package zfs

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"io"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// A token says where a stream broke off (receive_resume_token of zfsprops(7)). It comes
// from another machine, and names a snapshot of this one: zfs(8) would send whichever.
type token struct {
	name     string
	to, from uint64
}

// tokenMax is more than a token with the longest name has, unpacked or not.
const tokenMax = 8 << 10

func badToken(why string) error {
	return &problem{kind: snapshot.ErrNotSupported, why: "where it is to go on cannot be read: " + why}
}

// parseToken reads a token: a version, a checksum and the size of what is packed, and
// that, by zlib and in hexadecimal. zfs(8) looks at the checksum. What asks for another
// kind of stream than [Backend.Send] makes is refused.
func parseToken(text string) (token, error) {
	part := strings.Split(text, "-")
	if len(text) > tokenMax || len(part) != 4 || part[0] != "1" {
		return token{}, badToken("it is no token of version 1")
	}
	for _, number := range part[1:3] {
		if _, err := strconv.ParseUint(number, 16, 64); err != nil {
			return token{}, badToken(err.Error())
		}
	}
	packed, err := hex.DecodeString(part[3])
	if err != nil {
		return token{}, badToken(err.Error())
	}
	z, err := zlib.NewReader(bytes.NewReader(packed))
	if err != nil {
		return token{}, badToken(err.Error())
	}
	list, err := io.ReadAll(io.LimitReader(z, tokenMax))
	if err != nil {
		return token{}, badToken(err.Error())
	}
	return parseList(list)
}

// The types of what a token holds (data_type_t of include/sys/nvpair.h).
const (
	typeUint64 = 8
	typeString = 9
)

// pairSize is what a pair of a list has before its name (nvpair_t).
const pairSize = 16

// parseList reads a list of names and values as the kernel packs its own
// (nvs_native of module/nvpair/nvpair.c): how it is packed, a version, flags, and pairs,
// each of a multiple of eight bytes.
func parseList(list []byte) (t token, err error) {
	if len(list) < 12 || list[0] != 0 {
		return t, badToken("it is packed in another way")
	}
	var order binary.ByteOrder = binary.BigEndian
	if list[1] == 1 {
		order = binary.LittleEndian
	}
	seen := map[string]bool{}
	rest := list[12:]
	for len(rest) >= 4 && order.Uint32(rest) != 0 {
		size := uint64(order.Uint32(rest))
		if size < pairSize || size > uint64(len(rest)) {
			return t, badToken("it is damaged")
		}
		name, kind, value, ok := parsePair(rest[:size], order)
		if !ok || seen[name] {
			return t, badToken("it is damaged")
		}
		seen[name] = true
		rest = rest[size:]
		switch {
		case name == "toname" && kind == typeString:
			text, _, _ := bytes.Cut(value, []byte{0})
			t.name = string(text)
		case kind != typeUint64 || len(value) != 8:
			return t, badToken("it asks for " + strconv.Quote(name))
		case name == "toguid":
			t.to = order.Uint64(value)
		case name == "fromguid":
			t.from = order.Uint64(value)
		case name != "object" && name != "offset" && name != "bytes":
			return t, badToken("it asks for " + strconv.Quote(name))
		}
	}
	if !seen["toname"] || !seen["toguid"] || len(rest) != 4 {
		return t, badToken("it is incomplete")
	}
	return t, nil
}

// parsePair reads one pair: sizes and a type, the name, and the value, which begins at a
// multiple of eight bytes.
func parsePair(pair []byte, order binary.ByteOrder) (name string, kind uint32, value []byte, ok bool) {
	long := int(order.Uint16(pair[4:])) // with the NUL at the end
	at := (pairSize + long + 7) &^ 7
	if long < 1 || at > len(pair) || pair[pairSize+long-1] != 0 {
		return "", 0, nil, false
	}
	return string(pair[pairSize : pairSize+long-1]), order.Uint32(pair[12:]), pair[at:], true
}
