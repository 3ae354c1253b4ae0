//go:build linux

package zfs

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"

	"github.com/snapfs/snapfs/engine/snapshot"
)

// pair packs a name and a value as the kernel does.
func pair(name string, kind uint32, value []byte) []byte {
	at := (pairSize + len(name) + 1 + 7) &^ 7
	b := make([]byte, (at+len(value)+7)&^7)
	binary.LittleEndian.PutUint32(b, uint32(len(b)))
	binary.LittleEndian.PutUint16(b[4:], uint16(len(name)+1))
	binary.LittleEndian.PutUint32(b[8:], 1)
	binary.LittleEndian.PutUint32(b[12:], kind)
	copy(b[pairSize:], name)
	copy(b[at:], value)
	return b
}

func number(name string, n uint64) []byte {
	return pair(name, typeUint64, binary.LittleEndian.AppendUint64(nil, n))
}

// list packs pairs.
func list(pairs ...[]byte) []byte {
	head := []byte{0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}
	return append(append(head, bytes.Join(pairs, nil)...), 0, 0, 0, 0)
}

func tokenOf(packed []byte) string {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(packed)
	_ = w.Close() // a buffer takes all
	return fmt.Sprintf("1-%x-%x-%s", 12345, len(packed), hex.EncodeToString(z.Bytes()))
}

// kernelToken is one of OpenZFS 2.1.11.
const kernelToken = "1-10590af259-e8-789c636064000310a500c4ec50360710e72765a526973030a8409460caa7a515a702e5191c10f26c48f2499525a9" +
	"c5403a611b1756fd25f9e9a599290c0c93d56b1b1b5feb1d8e4092e704cbe725e6a602e9c4bc6cfde2bcc482b4625da08925baa5c9ba399939ba66a696a6166" +
	"66686c6fa2545a9a90e501546c5a965a6156639c569e565c60c300000b4c3276e"

func TestATokenOfTheKernelIsRead(t *testing.T) {
	got, err := parseToken(kernelToken)
	want := token{name: "tank/snapfs-test-uc-lil-659586613/tree@snapfs-2sev5x6lsfwv3", to: 0xc32eeb81817d2793}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestATokenSaysWhatItIsAbout(t *testing.T) {
	name := pair("toname", typeString, []byte("tank/a@b\x00"))
	whole := list(number("fromguid", 7), number("object", 1), number("offset", 2), number("bytes", 3), number("toguid", 1<<63), name)
	got, err := parseToken(tokenOf(whole))
	if want := (token{"tank/a@b", 1 << 63, 7}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for why, packed := range map[string][]byte{
		"raw":             list(number("toguid", 1), name, pair("rawok", 1, nil)),
		"saved":           list(number("toguid", 1), name, number("savedok", 1)),
		"two names":       list(number("toguid", 1), name, name),
		"no name":         list(number("toguid", 1)),
		"no guid":         list(name),
		"a name's type":   list(number("toguid", 1), number("toname", 1)),
		"more":            append(list(number("toguid", 1), name), 0),
		"cut":             whole[:len(whole)-8],
		"another packing": append([]byte{1}, whole[1:]...),
		"nothing":         nil,
	} {
		if got, err := parseToken(tokenOf(packed)); !errors.Is(err, snapshot.ErrNotSupported) {
			t.Errorf("%s: %+v, %v", why, got, err)
		}
	}
	good := tokenOf(whole)
	for _, text := range []string{"", "-n", "-", "2" + good[1:], good + "0", good + "-00", "1-x-1-00", "1-1-1-0000"} {
		if got, err := parseToken(text); !errors.Is(err, snapshot.ErrNotSupported) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for at := range whole { // whatever is damaged, it is read or refused
		for bit := range 8 {
			bad := bytes.Clone(whole)
			bad[at] ^= 1 << bit
			_, _ = parseList(bad)
			_, _ = parseList(bad[:at])
		}
	}
}

// first is the first record of a stream.
func first(order binary.ByteOrder, change func(raw []byte)) []byte {
	raw := make([]byte, beginSize)
	order.PutUint64(raw[8:], beginMagic)
	order.PutUint64(raw[16:], substream|(spill|resuming)<<2)
	order.PutUint32(raw[32:], filesystem)
	order.PutUint64(raw[40:], 40)
	order.PutUint64(raw[48:], 48)
	copy(raw[56:], "tank/a@b")
	if change != nil {
		change(raw)
	}
	return raw
}

func TestOnlyAPlainStreamIsRead(t *testing.T) {
	le := binary.LittleEndian
	for _, order := range []binary.ByteOrder{le, binary.BigEndian} {
		raw := append(first(order, nil), "rest"...)
		got, all, err := readBegin(bytes.NewReader(raw))
		if want := (begin{to: 40, from: 48, resuming: true}); err != nil || got != want {
			t.Fatalf("%+v, %v", got, err)
		}
		if text, err := io.ReadAll(all); !bytes.Equal(text, raw) || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	}
	for why, change := range map[string]func([]byte){
		"a record of another kind": func(raw []byte) { raw[0] = 1 },
		"no magic":                 func(raw []byte) { raw[8]++ },
		"a package":                func(raw []byte) { le.PutUint64(raw[16:], 2) },
		"raw blocks":               func(raw []byte) { le.PutUint64(raw[16:], substream|1<<24<<2) },
		"something new":            func(raw []byte) { le.PutUint64(raw[16:], substream|1<<45<<2) },
		"a volume":                 func(raw []byte) { raw[32] = 3 },
		"no snapshot":              func(raw []byte) { raw[62] = 0 },
	} {
		if _, _, err := readBegin(bytes.NewReader(first(le, change))); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("%s: %v", why, err)
		}
	}
	if _, _, err := readBegin(bytes.NewReader(first(le, nil)[:beginSize-1])); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("cut off: %v", err)
	}
}

func TestTheLastByteIsGivenWhenTheStreamHasEndedWell(t *testing.T) {
	boom := errors.New("boom")
	for _, text := range []string{"", "a", "ab", "abcdefgh"} {
		for name, slow := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "with its end": iotest.DataErrReader,
		} {
			good := &giver{r: slow(bytes.NewReader([]byte(text)))}
			got, err := io.ReadAll(good)
			if string(got) != text || err != nil || !errors.Is(good.how(), io.EOF) {
				t.Errorf("%s %q: %q, %v, %v", name, text, got, err, good.how())
			}
			bad := &giver{r: slow(io.MultiReader(bytes.NewReader([]byte(text)), iotest.ErrReader(boom)))}
			got, err = io.ReadAll(iotest.OneByteReader(bad))
			if want := text[:max(0, len(text)-1)]; string(got) != want || !errors.Is(err, boom) || !errors.Is(bad.how(), boom) {
				t.Errorf("%s %q, broken: %q, %v, %v", name, text, got, err, bad.how())
			}
		}
	}
}
