//go:build linux

package zfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// formStream is what zfs(8) sends without any option: one snapshot, without properties,
// in blocks of at most 128 KiB.
const formStream = "zfs-1"

// A begin is the first record of a stream (dmu_replay_record_t with drr_begin, in
// include/sys/zfs_ioctl.h).
type begin struct {
	// to is the guid of the snapshot, and from that of the one it is the difference to, or 0.
	to, from uint64
	// resuming: it is the rest of a stream.
	resuming bool
}

const (
	beginSize  = 312 // the size of every record, without what follows it
	beginMagic = 0x2F5bacbac
	// What a stream may be: no package of several (which alone has properties), no
	// volume, and nothing that it takes an option to send, raw (encrypted) blocks
	// above all.
	substream  = 1 // DMU_SUBSTREAM
	filesystem = 2 // DMU_OST_ZFS
	spill      = 1 << 2
	resuming   = 1 << 20
	largeDnode = 1 << 23
)

// readBegin reads the first record of a stream, and answers with all of the stream.
// Errors: ErrCorrupt (none that our own sending makes), and those of r.
func readBegin(r io.Reader) (begin, io.Reader, error) {
	raw := make([]byte, beginSize)
	if _, err := io.ReadFull(r, raw); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = corrupt("it is too short for a stream of ZFS")
		}
		return begin{}, nil, err
	}
	var order binary.ByteOrder = binary.LittleEndian // the sender's
	if order.Uint64(raw[8:]) != beginMagic {
		order = binary.BigEndian
	}
	version := order.Uint64(raw[16:])
	name, _, _ := bytes.Cut(raw[56:], []byte{0})
	var why string
	switch features := version >> 2; {
	case order.Uint32(raw) != 0 || order.Uint64(raw[8:]) != beginMagic:
		why = "it is no stream of ZFS"
	case version&3 != substream:
		why = "it is a package of streams, which may have properties"
	case order.Uint32(raw[32:]) != filesystem:
		why = "it is not of a filesystem"
	case features&^(spill|resuming|largeDnode) != 0:
		why = "it has what snapfs does not send, such as raw blocks"
	case !strings.Contains(string(name), "@"):
		why = "it is not of a snapshot"
	}
	if why != "" {
		return begin{}, nil, corrupt(why)
	}
	b := begin{to: order.Uint64(raw[40:]), from: order.Uint64(raw[48:]), resuming: version>>2&resuming != 0}
	return b, io.MultiReader(bytes.NewReader(raw), r), nil
}
