package budget

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
)

// A sandbox that is sent to another machine gets a ledger of its own there, which nobody can lock together with the one
// here. So each ledger has an identity, and a stream says how much each has counted. The receiver takes the larger
// amount for each identity, so that a stream may arrive twice, late, or by way of a third machine, and nothing is
// counted twice or forgotten.

// maxElsewhere is how many ledgers of other machines a ledger may know, and maxExported the largest amount of each.
// Together they cannot overflow.
const (
	maxElsewhere = 1000
	maxExported  = 1 << 52
)

// identityLength is the length of a ledger's identity, a text of rand.Text.
const identityLength = 26

// Exported is the part of a stream that reports the use of a sandbox's budget: the identity of the sandbox's own
// ledger, and for this and other ledgers how much of each amount they have counted, by the names of the amounts in a
// profile. What open requests reserved counts as used.
type Exported struct {
	Ledger string
	Used   map[string]map[string]int64
}

// Check returns an error if x, which comes from another machine, has no valid amounts.
func (x *Exported) Check() error {
	if len(x.Used) > maxElsewhere {
		return fmt.Errorf("the budget was counted by %d ledgers, and at most %d are allowed", len(x.Used), maxElsewhere)
	}
	for id, used := range x.Used {
		if len(id) != identityLength {
			return fmt.Errorf("the budget was counted by a ledger with the invalid identity %q", id)
		}
		var c Count
		for name, n := range used {
			i := slices.IndexFunc(c.Fields(), func(f Field) bool { return f.Name == name })
			if i < 0 || n < 0 || n > maxExported {
				return fmt.Errorf("the budget has the invalid amount %d of %q", n, name)
			}
		}
	}
	return nil
}

// Export returns the use of the budget of the sandbox with the directory dir, for a stream to another machine. It gives
// the ledger an identity, also while a proxy has the ledger open.
func Export(dir string) (x Exported, err error) {
	err = withLog(dir, func(l *Ledger) error {
		s := &l.tally.state
		if s.Ledger == "" {
			if err := l.write(line{Ledger: rand.Text()}); err != nil {
				return err
			}
			if err := l.log.Sync(); err != nil { // with another identity, other machines would count the same use twice
				return err
			}
		}
		own := s.Used.plus(s.Reserved)
		x = Exported{Ledger: s.Ledger, Used: map[string]map[string]int64{}}
		for id, c := range s.Elsewhere {
			own = own.minus(c)
			x.Used[id] = c.byName()
		}
		x.Used[s.Ledger] = own.byName()
		return nil
	})
	return x, err
}

// Import adds x, which another machine sent with the sandbox, to the ledger of the sandbox with the directory dir, also
// while a proxy has the ledger open. It ignores the entry of x for this very ledger. A repeated call changes nothing.
// It returns an error if [Exported.Check] does, and counts nothing then.
func Import(dir string, x Exported) error {
	if err := x.Check(); err != nil {
		return err
	}
	return withLog(dir, func(l *Ledger) error {
		s := &l.tally.state
		more := map[string]Count{}
		for id, used := range x.Used {
			var c Count
			for _, f := range c.Fields() {
				*f.Value = used[f.Name]
			}
			if id != s.Ledger && s.Elsewhere[id].largest(c) != s.Elsewhere[id] {
				more[id] = c
			}
		}
		known := map[string]Count{}
		maps.Copy(known, s.Elsewhere)
		maps.Copy(known, more)
		switch {
		case len(known) > maxElsewhere:
			return fmt.Errorf("the budget was counted by more than %d ledgers", maxElsewhere)
		case len(more) == 0:
			return nil
		}
		return l.write(line{Elsewhere: more})
	})
}

// withLog calls f with the ledger of the sandbox with the directory dir, whose file is locked meanwhile. It creates the
// file if it is missing.
func withLog(dir string, f func(*Ledger) error) error {
	log, err := openLog(dir)
	if err != nil {
		return err
	}
	defer log.Close()
	l := &Ledger{dir: dir, log: log}
	if err := l.catchUp(); err != nil {
		return err
	}
	return f(l)
}

// countElsewhere counts what ledgers on other machines have used: of each the largest amounts that any stream named.
func (s *State) countElsewhere(all map[string]Count) {
	for id, c := range all {
		if s.Elsewhere == nil {
			s.Elsewhere = map[string]Count{}
		}
		was := s.Elsewhere[id]
		now := was.largest(c)
		s.Elsewhere[id] = now
		s.Used = s.Used.plus(now).minus(was)
	}
}

// largest returns the larger of c and o for each amount that can be a limit, and c for the others.
func (c Count) largest(o Count) Count {
	theirs := o.Fields()
	for i, f := range c.Fields() {
		*f.Value = max(*f.Value, *theirs[i].Value)
	}
	return c
}

// byName returns the amounts of c that can be limits and are not zero, by their names in a profile.
func (c Count) byName() map[string]int64 {
	all := map[string]int64{}
	for _, f := range c.Fields() {
		if *f.Value != 0 {
			all[f.Name] = min(*f.Value, maxExported)
		}
	}
	return all
}
