package policy

import (
	"fmt"
	"time"

	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/network"
)

// never is the value of the key ask of a profile for a sandbox whose unknown destinations are refused at once.
const never = "none"

// ParseAsk returns how long a connection to an unknown destination waits for a person, from its text: a duration
// from 1s to 2m, or "none" for 0.
func ParseAsk(text string) (time.Duration, error) {
	if text == never {
		return 0, nil
	}
	d, err := units.ParseDuration(text)
	if err == nil && (d < network.MinAskTime || d > network.MaxAskTime) {
		err = fmt.Errorf("%s is not from %s to %s", text, units.FormatDuration(network.MinAskTime), units.FormatDuration(network.MaxAskTime))
	}
	return d, err
}

// askText returns the time d for which a connection waits for a person as [ParseAsk] reads it.
func askText(d time.Duration) string {
	if d == 0 {
		return never
	}
	return units.FormatDuration(d)
}

// ask stores v, the value of the key ask of a profile, in r.sandbox. It records a mistake in v at path, the key's path
// in the file.
func (r *reader) ask(path string, v any) {
	text := r.text("ask", path, v)
	if text == "" {
		return
	}
	d, err := ParseAsk(text)
	if err != nil {
		r.wrong(path+"=", "ask: "+err.Error(), `write it as "1m", or "none"`)
		return
	}
	r.sandbox.Ask = d
	r.said("sandbox.ask", askText(d), path)
}
