package run

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestTimedRunsRepeatedly(t *testing.T) {
	p, err := Prepare(Program{Name: "sleep", Args: []string{"0.01"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		if took, err := p.Run(t.Context()); err != nil || took < 10*time.Millisecond || took > 5*time.Second {
			t.Errorf("%v, %v", took, err)
		}
	}
}

func TestTimedErrorQuotesTheOutput(t *testing.T) {
	p, err := Prepare(Program{Name: "sh", Args: []string{"-c", "echo why >&2; exit 7"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 2 {
		_, err = p.Run(t.Context())
		var e *Error
		if !errors.As(err, &e) || e.Code != 7 || e.Error() != "sh: why" {
			t.Errorf("got %v", err)
		}
	}
}

func TestTimedEndsWithItsContext(t *testing.T) {
	p, err := Prepare(Program{Name: "sleep", Args: []string{"100"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if took, err := p.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || took > 10*time.Second {
		t.Errorf("%v, %v", took, err)
	}
}

func TestPrepareReportsAMissingProgram(t *testing.T) {
	_, err := Prepare(Program{Name: "no-such-program"})
	if !errors.Is(err, ErrMissing) {
		t.Errorf("got %v", err)
	}
}
