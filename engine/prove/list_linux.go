package prove

// List returns every probe of the isolation, in the best order for display. Probes may run in any order and
// repeatedly, but not concurrently in one sandbox.
func List() []Probe {
	var all []Probe
	for _, part := range [][]Probe{limitProbes(), rateProbes()} {
		all = append(all, part...)
	}
	for _, part := range [][]Probe{networkProbes(), hostProbes(), ruleProbes(), powerProbes()} {
		for _, p := range part {
			p.Quick = true
			all = append(all, p)
		}
	}
	return all
}
