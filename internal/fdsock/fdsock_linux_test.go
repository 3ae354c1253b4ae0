package fdsock

import (
	"runtime"
	"testing"
)

// A message is the receiver's: the next one does not change it, and it takes little more memory than it has bytes.
func TestAMessageStaysAndIsSmall(t *testing.T) {
	receiver, other, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	sender := FromFD(int(other.Fd()))
	defer other.Close()
	receive := func(text string) []byte {
		if err := sender.Send([]byte(text)); err != nil {
			t.Fatal(err)
		}
		msg, files, err := receiver.Receive()
		if err != nil || len(files) > 0 {
			t.Fatal(files, err)
		}
		return msg
	}
	first := receive("first")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const times = 100
	for range times {
		receive("second")
	}
	runtime.ReadMemStats(&after)
	if string(first) != "first" {
		t.Errorf("the first message became %q", first)
	}
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > MaxMessage/2 { // the race detector drops some memory of a pool
		t.Errorf("receiving 6 bytes took %d bytes of memory", each)
	}
}

// Only the other end can hang up: not this end, when it ends its requests.
func TestOnlyTheOtherEndHangsUp(t *testing.T) {
	mine, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	theirs := FromFD(int(file.Fd()))
	defer file.Close()
	if err := mine.ShutdownRead(); err != nil || mine.HungUp() {
		t.Errorf("after its own ShutdownRead the other end seems to have hung up: %v", err)
	}
	if err := theirs.Shutdown(); err != nil || !mine.HungUp() {
		t.Errorf("after its Shutdown the other end seems to be there: %v", err)
	}
}
