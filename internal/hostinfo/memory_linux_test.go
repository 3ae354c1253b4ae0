package hostinfo

import "testing"

func TestMemoryIsWhatTheMachineHas(t *testing.T) {
	total, available, err := Memory()
	if err != nil || available <= 0 || available > total {
		t.Errorf("%d of %d bytes are available, %v", available, total, err)
	}
	unused, err := UnusedMemory()
	if err != nil || unused <= 0 || unused > total {
		t.Errorf("%d of %d bytes are unused, %v", unused, total, err)
	}
}

func TestPressureIsAShare(t *testing.T) {
	for _, of := range []string{"cpu", "memory", "io", "nothing"} {
		some, full, ok := Pressure(of)
		if some < 0 || some > 100 || full < 0 || full > some || ok && of == "nothing" {
			t.Error(of, some, full, ok)
		}
	}
}
