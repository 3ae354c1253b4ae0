package catalog

import "strings"

// Shown returns p as snapfs shows it: without the values of variables that are given as NAME=VALUE, which are often
// secrets. Later commands of the sandbox need them, so its record has them.
func (p Policy) Shown() Policy {
	p.Env = VariableNames(p.Env)
	return p
}

// VariableNames returns the names of variables that are given as NAME or NAME=VALUE.
func VariableNames(variables []string) (names []string) {
	for _, v := range variables {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	return names
}
