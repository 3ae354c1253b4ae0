package budget

import (
	"math"
	"math/bits"
	"strings"
)

// A Price is what one AI model's tokens cost, each in millionths of a currency for a million tokens.
type Price struct {
	// Model is the model's name in requests, or the beginning of names, with * at its end.
	Model string `json:"model"`
	// Input is the price of input tokens. Cached and Written are those of input tokens that the provider reads from its
	// cache and writes to it; -1 means the price of Input.
	Input   int64 `json:"input"`
	Cached  int64 `json:"cached"`
	Written int64 `json:"cache_write"`
	Output  int64 `json:"output"`
}

// matches reports whether the price is for the model called name.
func (p *Price) matches(name string) bool {
	start, is := strings.CutSuffix(p.Model, "*")
	return name == p.Model || is && strings.HasPrefix(name, start)
}

// priceOf returns the price in all that is for the model called name, or nil. Of several it is that with the longest
// name, which is the most exact.
func priceOf(all []Price, name string) (best *Price) {
	for i := range all {
		if p := &all[i]; p.matches(name) && (best == nil || len(p.Model) > len(best.Model)) {
			best = p
		}
	}
	return best
}

// Cost returns the price of the tokens in c, in millionths of the currency, rounded up. A cost too large to count is
// the largest int64. It returns 0 for a nil price.
func (p *Price) Cost(c Count) int64 {
	if p == nil {
		return 0
	}
	cached := min(max(0, c.Cached), c.Input)
	written := min(max(0, c.Written), c.Input-cached)
	return sumCost(c.Input-cached-written, p.Input, cached, or(p.Cached, p.Input), written, or(p.Written, p.Input), c.Output, p.Output)
}

// Worst returns the greatest price that the tokens in c may have, in millionths of the currency, as nobody knows
// before a request which of its input the provider has cached. Overflow and nil are as in Cost.
func (p *Price) Worst(c Count) int64 {
	if p == nil {
		return 0
	}
	return sumCost(c.Input, max(p.Input, or(p.Cached, p.Input), or(p.Written, p.Input)), c.Output, p.Output)
}

// or returns price, or otherwise if price is negative, which means that it is not set.
func or(price, otherwise int64) int64 {
	if price < 0 {
		return otherwise
	}
	return price
}

// sumCost returns the sum of numbers of tokens, each times the price of a million that follows it, rounded up to a
// millionth of the currency.
func sumCost(pairs ...int64) int64 {
	var high, low uint64
	for i := 0; i < len(pairs); i += 2 {
		h, l := bits.Mul64(uint64(pairs[i]), uint64(pairs[i+1]))
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		high, carry = bits.Add64(high, h, carry)
		if carry > 0 {
			return math.MaxInt64
		}
	}
	low, carry := bits.Add64(low, tokensPriced-1, 0)
	if high += carry; high >= tokensPriced {
		return math.MaxInt64
	}
	cost, _ := bits.Div64(high, low, tokensPriced)
	return int64(min(cost, math.MaxInt64))
}

// tokensPriced is the number of tokens that a price is for.
const tokensPriced = 1_000_000
