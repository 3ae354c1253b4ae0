package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
)

func budgetSection() Section {
	return Section{
		Header: "[budget]",
		Text: "What the requests of a sandbox may use over its life. The network proxy counts the requests that it reads: those to hosts of a secret, of a rule with methods, " +
			"to known providers of models, and to hosts. It answers 429 with the reason to a request beyond the budget, which is an event (snapfs.network.refused), and pauses a named sandbox until the budget is raised; snapfs budget shows and raises it.",
		Keys: []Key{
			{"requests", "number", "", "HTTP requests."},
			{"bytes-sent", "size", "", "The bodies of requests, together."},
			{"tokens", "number", "", "Tokens of models, input and output together, as the provider reports them. Before a request, its worst case must fit: its input and its max_tokens."},
			{"input-tokens", "number", "", "Input tokens, also cached ones."},
			{"output-tokens", "number", "", "Output tokens."},
			{"money", "number", "", "What the tokens of models may cost together, as 2.50, in the currency of the prices below. A request to a model without a price is refused."},
			{"hosts", "list of names", "", "Servers besides the known providers whose requests cost tokens, as do those to the names below them."},
		},
	}
}

// budget stores one key of the section [budget] of a profile, which bounds a sandbox's requests to the
// network, in r.sandbox: its name, and its value v. If v is not valid it records a mistake at path, the key's
// path in the file.
func (r *reader) budget(name, path string, v any) {
	if r.sandbox.Budget == nil {
		r.sandbox.Budget = new(catalog.Budget)
	}
	b := r.sandbox.Budget
	if ceiling, ok := b.Ceilings()[name]; ok {
		*ceiling = r.amount(name, path, v)
		r.said("budget."+name, budget.FormatAmount(name, *ceiling), path)
		return
	}
	if name == "hosts" {
		r.texts(name, path, v, func(text, path string) {
			if text = network.Fold(text); !network.ValidName(text) {
				r.wrong(path, fmt.Sprintf("hosts: invalid name %q", text), `write a name without a port, as "models.example.com"`)
			}
			b.Hosts = append(b.Hosts, text)
			r.said("budget.hosts", text, path)
		})
	}
}

// amount returns the value v of the key name of a profile as a number: v is a number, or a text with a count
// or, for bytes-sent, a size. For money it is in millionths. It records a mistake at path for other values.
func (r *reader) amount(name, path string, v any) int64 {
	n, err := budget.ParseAmount(name, r.number(name, path, v))
	if err != nil {
		r.wrong(path+"=", name+": "+err.Error(), "for no limit, remove the line")
	}
	return n
}

// number returns v, the value of the key name of a profile, as text, if it is a number or a text. Otherwise it records
// a mistake at path and returns "1".
func (r *reader) number(name, path string, v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	r.wrong(path, name+": expected a number, got "+kind(v), "write "+name+" = 1000")
	return "1"
}

func pricesSection() Section {
	return Section{
		Header: "[prices.NAME]",
		Text: "What the tokens of a model cost, for money in [budget]. NAME is the model's name in requests, or the beginning of names: [prices.\"claude-sonnet-*\"]. " +
			"Of several the longest counts. Each price is for a million tokens; all have the same currency, which snapfs does not need to know. " +
			"Fees of a provider that are not for tokens, as for a search, do not count. Where the site's policy has a budget of money, only its prices count.",
		Keys: []Key{
			{"input", "number", "", "The price of input tokens."},
			{"cached", "number", "the input's", "The price of input tokens that the provider reads from its cache."},
			{"cache-write", "number", "the input's", "The price of input tokens that the provider writes to its cache. Where it has several such prices, give the highest."},
			{"output", "number", "", "The price of output tokens."},
		},
	}
}

// maxPrices is the greatest number of prices in a profile.
const maxPrices = 256

// prices reads the sections [prices.NAME] of a profile, decoded into table, and adds each model's price to the budget
// in r.sandbox. path is the path of the table in the file.
func (r *reader) prices(path string, table map[string]any) {
	if len(table) > maxPrices {
		r.wrong(path, fmt.Sprintf("more than %d prices", maxPrices), "remove some, or write * at the end of a name")
		return
	}
	if r.sandbox.Budget == nil {
		r.sandbox.Budget = new(catalog.Budget)
	}
	for _, model := range slices.Sorted(maps.Keys(table)) {
		at := path + "." + printable(model)
		one, ok := table[model].(map[string]any)
		switch {
		case !ok:
			r.wrong(at, "prices: "+printable(model)+" is no section", `write [prices."MODEL"]`)
			continue
		case strings.Contains(strings.TrimSuffix(model, "*"), "*") || printable(model) != model:
			r.wrong(at, fmt.Sprintf("prices: invalid name %q", model), "write a model's name, or the beginning of names with * at the end")
			continue
		}
		p := catalog.ModelPrice{Model: model, Cached: -1, Written: -1}
		keys := map[string]*int64{"input": &p.Input, "cached": &p.Cached, "cache-write": &p.Written, "output": &p.Output}
		r.section(pricesSection(), at, one, func(key, path string, v any) {
			n, err := units.ParseMoney(r.number(key, path, v))
			if err != nil {
				r.wrong(path+"=", key+": "+err.Error(), "write the price of a million tokens, as 2.50")
			}
			*keys[key] = n
		})
		for _, key := range []string{"input", "output"} {
			if one[key] == nil {
				r.wrong(at, fmt.Sprintf("the price of %s has no %s", printable(model), key), "add "+key+" = 2.50, the price of a million tokens")
			}
		}
		r.sandbox.Budget.Prices = append(r.sandbox.Budget.Prices, p)
		r.said("prices."+model, priceText(p), at)
	}
}

// priceText returns the price p as text for a person.
func priceText(p catalog.ModelPrice) string {
	text := "input " + units.FormatMoney(p.Input)
	for _, part := range []struct {
		name  string
		price int64
	}{{"cached", p.Cached}, {"cache-write", p.Written}, {"output", p.Output}} {
		if part.price >= 0 {
			text += ", " + part.name + " " + units.FormatMoney(part.price)
		}
	}
	return text
}
