package policy

import (
	"fmt"
	"strconv"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/snapfs/snapfs/network"
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
		r.said("budget."+name, strconv.FormatInt(*ceiling, 10), path)
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
// or, for bytes-sent, a size. It records a mistake at path for other values.
func (r *reader) amount(name, path string, v any) int64 {
	text := fmt.Sprint(v)
	switch v.(type) {
	case string, int64:
	default:
		r.wrong(path, name+": expected a number, got "+kind(v), "write "+name+" = 1000")
		return 0
	}
	parse := units.ParseCount
	if name == "bytes-sent" {
		parse = units.ParseSize
	}
	n, err := parse(text)
	if err != nil {
		r.wrong(path+"=", name+": "+err.Error(), "for no limit, remove the line")
	}
	return n
}
