// Package units parses and formats sizes, rates, counts, processors and durations as people write them on a
// command line and in a file.
//
// The package is strict: an ambiguous text is an error that suggests a correct one. Each kind of value has a
// Parse function, and a Format function whose text Parse converts back to exactly the same value. Functions
// named Text are for sentences, and may round.
package units

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Bounds of the values that the Parse functions accept. A value outside of them is surely a typing error.
const (
	// MaxSize is the largest size that [ParseSize] accepts, 1 EiB, in bytes.
	MaxSize = 1 << 60
	// MaxCount is the largest count that is accepted. It exceeds any number of things that a host can have.
	MaxCount = 1_000_000_000_000
	// MinCPUs is the smallest number of processors that the kernel can enforce as a limit: 1 ms of each 100
	// ms.
	MinCPUs = 0.01
	// MaxCPUs is the most processors that Linux supports (CONFIG_NR_CPUS).
	MaxCPUs = 8192
)

// letters are the first letters of the units of a size, each 1024 times the one before, beginning with the
// byte.
const letters = "BKMGTPE"

// ErrZero means that a parsed value, such as a size, is zero. A caller that reads limits adds to its text how
// to write that there is no limit.
var ErrZero = errors.New("zero")

// ParseSize parses a size: a decimal number and a unit, as in "512M", "1.5T" or "100MiB". K, KB and KiB are all
// 1024 bytes, in upper and in lower case. The result is in bytes, at least 1 and at most [MaxSize]; a fraction
// of a byte is dropped. Errors match [ErrZero] for less than a byte.
func ParseSize(text string) (int64, error) { return parseSize("size", text, text, "") }

// parseSize parses text as a size in bytes. text is whole without the suffix of a rate, such as "/s". An
// error names the kind of value what and the text whole; per is the suffix that its suggestions get.
func parseSize(what, whole, text, per string) (int64, error) {
	fail := func(why string) (int64, error) { return 0, wrong(what, whole, why) }
	number, unit := split(text)
	if number == "" {
		return fail(notNumber(text, "512M"+per+" or 1.5G"+per))
	}
	power, known := 0, unit == ""
	if !known {
		power, known = sizeUnit(unit)
	}
	n, err := decimal(number, 1<<(10*power))
	switch {
	case err != nil:
		return fail(err.Error())
	case n == 0 && known:
		return 0, zero(what, whole, "nothing fits in zero")
	case n > MaxSize:
		return fail("more than any host has: the most is 1E" + per)
	case unit == "" && n > MaxSize>>20:
		return fail("no unit: write " + number + "B" + per + " for bytes")
	case unit == "":
		return fail("no unit: write " + number + "M" + per + ", or " + number + "B" + per + " for bytes")
	case exponent(unit):
		return fail("write the number out, as 512M" + per)
	case !known && n == 0, !known && !letter(unit[0]):
		return fail(strconv.Quote(unit) + " is no unit of size: write it like 512M" + per + " or 1.5G" + per)
	case !known:
		return fail(fmt.Sprintf("%q is no unit of size: write %[2]sK%[3]s, %[2]sM%[3]s, %[2]sG%[3]s or %[2]sT%[3]s", unit, number, per))
	}
	return int64(n), nil
}

// sizeUnit returns the power of 1024 that the unit of a size stands for: 2 for "M", "MB" or "MiB". ok is
// false for an unknown unit. A small b often means a bit, so "Mb" is no unit.
func sizeUnit(unit string) (power int, ok bool) {
	power = strings.Index(letters, strings.ToUpper(unit[:1]))
	if power < 0 || power == 0 && unit != "B" {
		return 0, false
	}
	rest := unit[1:]
	return power, rest == "" || rest == "B" || rest == "iB"
}

// FormatSize formats a size in bytes exactly, so that [ParseSize] returns the same number: "2G", "1.5G",
// "1000B".
func FormatSize(bytes int64) string {
	if bytes < 0 { // invalid: for the text of an error
		return strconv.FormatInt(bytes, 10) + "B"
	}
	power := exactPower(bytes)
	return eighths(bytes, power) + letters[power:power+1]
}

// SizeText formats a size in bytes for a sentence: "2 GiB", "1.5 GiB", "12 bytes". It rounds to a tenth of
// the unit.
func SizeText(bytes int64) string {
	if bytes < 1024 {
		return plural(strconv.FormatInt(bytes, 10), "byte")
	}
	power, value := 0, float64(bytes)
	for power < len(letters)-1 && math.Round(value*10) >= 10240 {
		value, power = value/1024, power+1
	}
	return trim(value, 1) + " " + letters[power:power+1] + "iB"
}

// ParseRate parses a size per second, as in "100M/s". The result is in bytes per second. Errors: those of
// [ParseSize].
func ParseRate(text string) (int64, error) {
	size, ok := strings.CutSuffix(text, "/s")
	n, err := parseSize("rate", text, size, "/s")
	if err == nil && !ok {
		return 0, wrong("rate", text, "in what time: write "+text+"/s")
	}
	return n, err
}

// FormatRate formats bytes per second as [ParseRate] accepts them: "100M/s".
func FormatRate(bytes int64) string { return FormatSize(bytes) + "/s" }

// ParseCount parses a whole number without a unit, as in "200", at least 1 and at most [MaxCount]. Errors match
// [ErrZero] for zero.
func ParseCount(text string) (int64, error) {
	fail := func(why string) (int64, error) { return 0, wrong("count", text, why) }
	number, unit := split(text)
	if number == "" {
		return fail(notNumber(text, "200"))
	}
	n, err := decimal(number, 1)
	switch {
	case err != nil:
		return fail(err.Error())
	case strings.Trim(number, "0.") == "":
		return 0, zero("count", text, "zero allows nothing")
	case n > MaxCount:
		return fail("more than any host has: the most is " + strconv.Itoa(MaxCount))
	case unit != "" && (exponent(unit) || !letter(unit[0])):
		return fail("not a whole number: write its digits alone, as 200")
	case strings.Contains(number, "."):
		return fail("not a whole number: write 200")
	case unit != "":
		return fail("a count has no unit: write " + number)
	}
	return int64(n), nil
}

// FormatCount formats a count, such as a limit of processes, as [ParseCount] accepts it: plain decimal
// digits.
func FormatCount(n int64) string { return strconv.FormatInt(n, 10) }

// MaxMoney is the largest amount of money that [ParseMoney] accepts, in millionths.
const MaxMoney = 1_000_000_000 * 1_000_000

// ParseMoney parses an amount of money in some currency, as in "5" or "0.25", and returns it in millionths. It may be
// zero, and is at most [MaxMoney]. What is smaller than a millionth is an error.
func ParseMoney(text string) (int64, error) {
	fail := func(why string) (int64, error) { return 0, wrong("amount", text, why) }
	number, unit := split(text)
	if number == "" {
		return fail(notNumber(text, "2.50"))
	}
	n, err := decimal(number, 1_000_000)
	_, fraction, _ := strings.Cut(number, ".")
	switch {
	case err != nil:
		return fail(err.Error())
	case unit != "":
		return fail("an amount of money has no unit: write " + number)
	case n > MaxMoney:
		return fail("too much: the most is " + FormatMoney(MaxMoney))
	case len(strings.TrimRight(fraction, "0")) > 6:
		return fail("smaller than a millionth: six decimals are enough")
	}
	return int64(n), nil
}

// FormatMoney formats an amount of money in millionths as [ParseMoney] accepts it: "2.50". It has at least two
// decimals.
func FormatMoney(millionths int64) string {
	sign := ""
	if millionths < 0 {
		sign, millionths = "-", -millionths
	}
	fraction := strings.TrimRight(fmt.Sprintf("%06d", millionths%1_000_000), "0")
	for len(fraction) < 2 {
		fraction += "0"
	}
	return fmt.Sprintf("%s%d.%s", sign, millionths/1_000_000, fraction)
}

// ParseCPUs parses a number of processors, as in "2" or "1.5", at least [MinCPUs] and at most [MaxCPUs]. Errors
// match [ErrZero] for zero.
func ParseCPUs(text string) (float64, error) {
	fail := func(why string) (float64, error) { return 0, wrong("processors", text, why) }
	number, unit := split(text)
	if number == "" {
		return fail(notNumber(text, "2 or 1.5"))
	}
	if _, err := decimal(number, 1); err != nil {
		return fail(err.Error())
	}
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil && !math.IsInf(n, 1):
		return fail("not a number: write 2 or 1.5")
	case n == 0:
		return 0, zero("processors", text, "nothing runs on none")
	case unit == "%":
		return fail("a number of processors, not a part of them: write 1.5 for 150%")
	case n > MaxCPUs:
		return fail("more than any host has: the most is " + strconv.Itoa(MaxCPUs))
	case unit != "" && (exponent(unit) || !letter(unit[0])):
		return fail("not a decimal number: write it like 1.5")
	case unit != "":
		return fail("processors have no unit: write " + number)
	case n < MinCPUs:
		return fail("the kernel divides a processor into hundredths: the least is 0.01")
	}
	return n, nil
}

// FormatCPUs formats a number of processors as [ParseCPUs] accepts it.
func FormatCPUs(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

func wrong(what, text, why string) error { return fmt.Errorf("%s %q: %s", what, text, why) }

// zero returns the error for a value of zero. It matches [ErrZero]; its text, made by [wrong], names the kind
// of value what, the text and the reason why.
func zero(what, text, why string) error { return fmt.Errorf("%w%.0w", wrong(what, text, why), ErrZero) }

// exponent reports whether rest, which follows the digits of a number, begins with an exponent, as in 1e3.
// The parsers refuse that with a hint.
func exponent(rest string) bool {
	return len(rest) > 1 && rest[0]|0x20 == 'e' && strings.ContainsRune("+-0123456789", rune(rest[1]))
}

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// notNumber returns the reason why text is no number, and suggests right, a correct example. text does not
// begin with a digit.
func notNumber(text, right string) string {
	switch {
	case text == "":
		return "empty: write " + right
	case text[0] == '-' || text[0] == '+':
		return "a limit has no sign: write " + right
	case strings.TrimSpace(text) != text:
		return "a blank does not belong here: write " + right
	}
	return "not a number: write " + right
}

// split splits a text such as "1.5G" into its leading digits and points, "1.5", and the rest, "G".
func split(text string) (number, rest string) {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}

// decimal multiplies a decimal number, as text, by a unit, without rounding errors. A fraction of 1 is
// dropped. For a result beyond 64 bits it returns the largest uint64.
func decimal(number string, unit uint64) (uint64, error) {
	whole, fraction, point := strings.Cut(number, ".")
	switch {
	case whole == "" || point && fraction == "" || strings.Contains(fraction, "."):
		return 0, fmt.Errorf("%s is not a decimal number: one has digits, and at most one point between them", number)
	case len(fraction) > 18:
		return 0, fmt.Errorf("too many decimals: %s.%s is enough", whole, fraction[:3])
	}
	n, err := strconv.ParseUint(whole, 10, 64)
	if err != nil {
		return math.MaxUint64, nil //nolint:nilerr // digits only: the number is too large
	}
	high, sum := bits.Mul64(n, unit)
	if high != 0 {
		return math.MaxUint64, nil
	}
	if point {
		part, err := strconv.ParseUint(fraction, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s is not a decimal number", number)
		}
		scale := uint64(math.Pow10(len(fraction))) // exact up to 22 digits
		high, low := bits.Mul64(part, unit)        // part < scale, so the quotient fits
		quotient, _ := bits.Div64(high, low, scale)
		if sum > math.MaxUint64-quotient {
			return math.MaxUint64, nil
		}
		sum += quotient
	}
	return sum, nil
}

// exactPower returns, for the largest suitable unit of a size, its power of 1024. Suitable is a unit of which
// n is a whole number of eighths, because three decimals represent those exactly.
func exactPower(n int64) int {
	power := 0
	for p := 1; p < len(letters) && n >= 1<<(10*p); p++ {
		if uint64(n)*8%(1<<(10*p)) == 0 {
			power = p
		}
	}
	return power
}

func eighths(n int64, power int) string {
	unit := uint64(1) << (10 * power)
	whole, rest := uint64(n)/unit, uint64(n)%unit
	text := strconv.FormatUint(whole, 10)
	if rest == 0 {
		return text
	}
	return text + strings.TrimRight(fmt.Sprintf(".%03d", rest*8/unit*125), "0")
}

// trim formats n with at most that many decimals, without zeros at the end: 1.5 and not 1.50.
func trim(n float64, decimals int) string {
	text := strconv.FormatFloat(n, 'f', decimals, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

func plural(n, noun string) string {
	if n == "1" {
		return n + " " + noun
	}
	return n + " " + noun + "s"
}
