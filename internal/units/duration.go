package units

import (
	"strconv"
	"strings"
	"time"
)

const (
	day = 24 * time.Hour
	// MaxDuration is the largest duration that [ParseDuration] accepts, a hundred years.
	MaxDuration = 36500 * day
)

// times maps the units that a duration may have to their length: Go's units, and "d" for days.
var times = map[string]time.Duration{
	"ns": 1, "us": time.Microsecond, "µs": time.Microsecond, "μs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day,
}

// ParseDuration parses a duration as Go prints it, optionally with days in front: "10m", "1h30m", "1.5s", "2d",
// "1d12h". The result is above zero and at most [MaxDuration]; a fraction of a nanosecond is dropped. Errors
// match [ErrZero] for zero.
func ParseDuration(text string) (time.Duration, error) {
	fail := func(why string) (time.Duration, error) { return 0, wrong("duration", text, why) }
	const right = "write it like 90s, 10m, 1h30m or 2d"
	var sum time.Duration
	for rest := text; rest != "" || text == ""; {
		number, after := split(rest)
		unit := after[:len(after)-len(strings.TrimLeftFunc(after, inUnit))]
		rest = after[len(unit):]
		size, known := times[unit]
		n, err := decimal(number, uint64(max(size, 1)))
		switch {
		case number == "":
			return fail(notNumber(text, "10m or 2d"))
		case err != nil:
			return fail(err.Error())
		case text == number && n == 0:
			return 0, zero("duration", text, "nothing happens in no time")
		case text == number && n > uint64(MaxDuration/day):
			return fail("no unit: " + right)
		case text == number:
			return fail("no unit: write " + number + "s, " + number + "m, " + number + "h or " + number + "d")
		case unit == "", exponent(unit + rest), unit == "d" && number+unit+rest != text:
			return fail("not a duration: " + right)
		case !known:
			return fail(strconv.Quote(unit) + " is no unit of time: " + right)
		case n > uint64(MaxDuration-sum):
			return fail("more than a hundred years: the most is 36500d")
		}
		sum += time.Duration(n)
	}
	if sum == 0 {
		return 0, zero("duration", text, "nothing happens in no time")
	}
	return sum, nil
}

// inUnit reports whether a character of a duration belongs to a unit: it is neither a digit nor a point.
func inUnit(r rune) bool { return (r < '0' || r > '9') && r != '.' }

// FormatDuration formats a duration exactly, as [ParseDuration] accepts it, without zero parts: "10m", "1d12h",
// "1.5s".
func FormatDuration(d time.Duration) string {
	var text string
	if d >= day {
		text, d = strconv.FormatInt(int64(d/day), 10)+"d", d%day
	}
	for _, u := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= u.size {
			text, d = text+strconv.FormatInt(int64(d/u.size), 10)+u.name, d%u.size
		}
	}
	if d > 0 || text == "" {
		text += d.String() // below a minute it is one number and one unit
	}
	return text
}
