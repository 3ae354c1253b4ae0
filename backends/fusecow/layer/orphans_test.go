//go:build linux

package layer_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snapfs/snapfs/backends/fusecow/layer"
	"github.com/snapfs/snapfs/backends/fusecow/layer/logfile"
	"github.com/snapfs/snapfs/backends/fusecow/layer/quota"
)

// sync makes the server commit.
func (b *bench) sync() {
	b.Helper()
	b.at(func(root *os.File) { b.must(root.Sync()) })
}

// open opens the layers and closes them cleanly.
func (b *bench) open() error {
	f, err := layer.Open(layer.Options{Lower: b.lower, Layers: b.layers})
	if err == nil {
		err = f.Close()
	}
	return err
}

// found lists what the top layer has set aside.
func (b *bench) found() (all []string) {
	b.Helper()
	files, err := filepath.Glob(b.layers[len(b.layers)-1] + "/found/*")
	b.must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		b.must(err)
		all = append(all, string(text))
	}
	slices.Sort(all)
	return all
}

func (b *bench) puts(want ...string) {
	b.Helper()
	if got := b.found(); !slices.Equal(got, want) {
		b.Errorf("put aside is %q, want %q", got, want)
	}
}

// frames returns the offsets of a log's frames, and its end.
func (b *bench) frames(log []byte) (at []int) {
	b.Helper()
	for i := 8; i < len(log); i += 8 + int(binary.LittleEndian.Uint32(log[i:])) {
		at = append(at, i)
	}
	return append(at, len(log))
}

func (b *bench) log() []byte {
	b.Helper()
	log, err := os.ReadFile(b.layers[len(b.layers)-1] + "/log")
	b.must(err)
	return log
}

func (b *bench) setLog(log []byte) {
	b.Helper()
	b.must(os.WriteFile(b.layers[len(b.layers)-1]+"/log", log, 0o600))
}

// TestOpenLeavesADamagedLogAlone until a repair, which backs up the log and sets aside what the lost frames
// recorded. It does all of that twice.
func TestOpenLeavesADamagedLogAlone(t *testing.T) {
	b := newBench(t)
	b.up()
	b.write(b.mount+"/first", "of the first frame")
	b.sync()
	b.down()
	for round, name := range []string{"/log.damaged", "/log.damaged.2"} {
		before := len(b.log())
		b.up()
		b.write(b.mount+"/second", "of the second frame")
		b.write(b.mount+"/gone", "of a file that went")
		b.sync()
		b.must(os.Remove(b.mount + "/gone"))
		b.sync()
		b.down()
		log := b.log()
		spoilt := slices.Clone(log)
		begun := slices.Index(b.frames(log), before)
		spoilt[b.frames(log)[begun+1]+20] ^= 0x55 // in the frame after the mark that the layer is open
		b.setLog(spoilt)
		for range 2 {
			if err := b.open(); !errors.Is(err, logfile.ErrDamaged) {
				t.Fatalf("opening it gives %v, want %v", err, logfile.ErrDamaged)
			}
		}
		if _, err := quota.OfLayer(b.layers[0], 0); !errors.Is(err, logfile.ErrDamaged) {
			t.Errorf("counting what it holds gives %v, want %v", err, logfile.ErrDamaged)
		}
		if !slices.Equal(b.log(), spoilt) || b.contents() != 2 || len(b.found()) != round {
			t.Error("what is damaged was changed by opening it")
		}
		if found := b.check(true); !mentions(found, "the log is damaged from byte", true) {
			t.Errorf("repairing tells %v", found)
		}
		if saved, err := os.ReadFile(b.layers[0] + name); err != nil || !slices.Equal(saved, spoilt) {
			t.Errorf("%s is not what the log was: %v", name, err)
		}
		b.puts(slices.Repeat([]string{"of the second frame"}, round+1)...)
		if left := b.check(false); len(left) > 0 {
			t.Errorf("after that there is %v", left)
		}
		b.up()
		b.has(b.mount+"/first", "of the first frame")
		b.down()
	}
	if sum, err := logfile.AsideBytes(b.layers[0]); err != nil || sum < 4*512 {
		t.Errorf("put aside are said to be %d bytes: %v", sum, err)
	}
}

// TestTornFrameLosesNoContent: the content that it recorded is set aside, and content that is known to be gone
// is deleted.
func TestTornFrameLosesNoContent(t *testing.T) {
	b := newBench(t)
	b.write(b.lower+"/below", "below")
	b.up()
	b.write(b.mount+"/gone", "of a file that went")
	b.sync()
	content := b.content(b.layers[0], "that went")
	b.must(os.Remove(b.mount + "/gone"))
	b.sync()
	known := len(b.log())
	b.write(b.mount+"/below", "changed")
	b.write(b.mount+"/new", "new")
	b.sync()
	b.kill()
	b.write(content, "of a file that went") // the log has recorded that it is gone, and then the server was killed
	b.setLog(b.log()[:known+5])
	b.must(b.open())
	b.puts("changed", "new")
	if n := b.contents(); n != 0 {
		t.Errorf("%d contents of nobody are where they were", n)
	}
	b.up()
	b.has(b.mount+"/below", "below")
	b.write(b.mount+"/new", "other") // gets the number of the content that was set aside
	b.write(b.mount+"/below", "other")
	b.again(false)
	b.has(b.mount+"/new", "other")
	b.down()
	b.puts("changed", "new")
}

// TestCorruptLastFrameIsBackedUp, because a kill would have left it shorter.
func TestCorruptLastFrameIsBackedUp(t *testing.T) {
	b := newBench(t)
	b.up()
	b.write(b.mount+"/file", "content")
	b.sync()
	b.kill()
	log := b.log()
	log[len(log)-1] ^= 0x55
	b.setLog(log)
	b.must(b.open())
	if saved, err := os.ReadFile(b.layers[0] + "/log.damaged"); err != nil || !slices.Equal(saved, log) {
		t.Errorf("the log is not kept as it was: %v", err)
	}
	b.puts("content")
}

// TestEmptiedLogLosesNoContent; a layer that was never opened has none.
func TestEmptiedLogLosesNoContent(t *testing.T) {
	for _, size := range []int{0, 3, 8} {
		b := newBench(t)
		b.up()
		b.write(b.mount+"/file", "content")
		b.down()
		b.setLog(b.log()[:size])
		b.must(b.open())
		b.puts("content")
	}
}

// TestKillLeavesNothingSetAside: the log is whole, without a record of the last file.
func TestKillLeavesNothingSetAside(t *testing.T) {
	b := newBench(t)
	b.up()
	b.write(b.mount+"/file", "content")
	b.sync()
	b.kill()
	b.must(os.MkdirAll(b.layers[0]+"/data/5", 0o700))
	b.write(b.layers[0]+"/data/5/2000000000000abc", "of a file of the last second")
	b.must(b.open())
	if n := b.contents(); n != 1 {
		t.Errorf("%d contents are there, want that of file", n)
	}
	b.puts()
}
