package proc

import (
	"os"
	"testing"
)

func TestParseStatIsNotFooledByAName(t *testing.T) {
	state, start, err := parseStat([]byte("42 (a) S 1 (x\n) R 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 7777 9 10 11"))
	if err != nil || state != 'R' || start != 7777 {
		t.Errorf("state %c, start %d, %v", state, start, err)
	}
	for _, bad := range []string{"", "42 (a", "42 (a) R 1 2 3"} {
		if _, _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was understood", bad)
		}
	}
}

func TestOnlyTheSameProcessIsAlive(t *testing.T) {
	self, err := Self()
	if err != nil || !Alive(self) || self.Boot == "" || self.PID != os.Getpid() {
		t.Fatalf("Self = %+v, %v", self, err)
	}
	for what, p := range map[string]Process{
		"another start":   {PID: self.PID, Start: self.Start + 1, Boot: self.Boot},
		"another boot":    {PID: self.PID, Start: self.Start, Boot: "earlier"},
		"no such process": {PID: 1 << 30, Start: self.Start},
	} {
		if Alive(p) {
			t.Errorf("%s counts as alive", what)
		}
	}
}

func TestANameIsThatOfARunningProcess(t *testing.T) {
	for name, want := range map[string]bool{
		Name(): true, Name() + "-1": true, Name() + "0-1": false, "1-0": true, "1-0-x": true, "": false, "1": false, "a-b-c": false, "new": false,
	} {
		if NameRuns(name) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}
