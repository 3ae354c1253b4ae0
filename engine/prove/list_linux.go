package prove

// List is every probe, in the order in which they are best shown. They may be
// run in any order and as often as wanted, but not two at once in one sandbox.
func List() []Probe {
	var all []Probe
	for _, part := range [][]Probe{limitProbes(), rateProbes()} {
		all = append(all, part...)
	}
	for _, part := range [][]Probe{networkProbes(), hostProbes(), powerProbes()} {
		for _, p := range part {
			p.Quick = true
			all = append(all, p)
		}
	}
	return all
}
