package packed_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/snapfs/snapfs/internal/packed"
)

type part struct {
	Name string
	When time.Time
	Bits []uint8
}

type whole struct {
	Yes, No  bool
	Small    int8
	Large    int64
	Most     uint64
	Share    float64
	Text     string
	Parts    []part
	None     []string
	Empty    []string
	Zero     *int
	Pointed  *part
	Nothing  *part
	Timeless time.Time
	Inner    part
}

func example() *whole {
	return &whole{
		Yes: true, Small: -128, Large: math.MinInt64, Most: math.MaxUint64, Share: -0.5, Text: "é\xff\x00",
		Parts: []part{{}, {Name: "a", When: time.Unix(1, 2).UTC(), Bits: []uint8{0, 255}}},
		Empty: []string{}, Zero: new(int), Pointed: &part{Name: strings.Repeat("x", 300)},
		Inner: part{When: time.Date(1600, 1, 1, 0, 0, 0, 1, time.FixedZone("", 3600))},
	}
}

// TestDecodedValueIsTheEncodedOne includes what a decoder could mistake: empty and missing slices, pointers to zero.
func TestDecodedValueIsTheEncodedOne(t *testing.T) {
	for _, want := range []*whole{example(), {}} {
		var got whole
		if err := packed.Decode(string(packed.Append(nil, want)), &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, &got); d != "" {
			t.Error(d)
		}
	}
}

// TestOtherBytesAreAnError cuts a value at each byte, adds one, and changes each.
func TestOtherBytesAreAnError(t *testing.T) {
	data := string(packed.Append(nil, example()))
	for n := range data {
		var got whole
		if packed.Decode(data[:n], &got) == nil {
			t.Errorf("%d of %d bytes are decoded", n, len(data))
		}
		for _, c := range []byte{0, 1, 0x7f, 0xff} {
			got = whole{}
			_ = packed.Decode(data[:n]+string([]byte{c})+data[n+1:], &got) // any value or an error, but no panic
		}
	}
	if packed.Decode(data+"\x00", new(whole)) == nil {
		t.Error("a byte after the value is no error")
	}
}

func TestLayoutsOfDifferentFieldsDiffer(t *testing.T) {
	type a struct{ X []int }
	type b struct{ X []int8 }
	type c struct {
		X []int `json:"y"`
	}
	seen := map[string]bool{}
	for _, layout := range []func() (string, error){packed.Layout[a], packed.Layout[b], packed.Layout[c], packed.Layout[whole]} {
		text, err := layout()
		if err != nil || seen[text] {
			t.Errorf("got %q again or an error: %v", text, err)
		}
		seen[text] = true
	}
	if text, err := packed.Layout[struct{ M map[string]int }](); err == nil {
		t.Errorf("a map has the layout %q, want an error", text)
	}
}
