package engine_test

import (
	"slices"
	"time"
)

// reduce looks for a shorter script that breaks the same promise: with fewer
// steps, then with simpler ones. One that does not break it in three tries is
// taken to keep it.
func (p *modelPlay) reduce() {
	deadline := time.Now().Add(90 * time.Second)
	try := func(s modelScript) bool {
		for range 3 {
			if time.Now().Before(deadline) && p.breaks(s) {
				return true
			}
		}
		return false
	}
	steps := min(len(p.failed.said), len(p.failed.script)) // what comes after plays no part
	if !try(p.failed.script[:steps]) {
		return
	}
	for before := 0; before != len(p.failed.script); {
		before = len(p.failed.script)
		for size := before / 2; size > 0; size /= 2 {
			for at := before - size; at >= 0; at -= size {
				if s := p.failed.script; at+size <= len(s) {
					try(slices.Delete(slices.Clone(s), at, at+size))
				}
			}
		}
	}
	for at := range p.failed.script {
		for _, simpler := range []func(*modelStep){
			func(s *modelStep) { s.fails, s.killed = 0, 0 },
			func(s *modelStep) { s.fails, s.killed = s.killed, 0 },
			func(s *modelStep) { s.later = false },
			func(s *modelStep) { s.looked = false },
			func(s *modelStep) { s.answers = "" },
			func(s *modelStep) { s.how = 3 },
			func(s *modelStep) { s.line = min(s.line, 0) },
		} {
			s := slices.Clone(p.failed.script)
			if simpler(&s[at]); s[at] != p.failed.script[at] {
				try(s)
			}
		}
	}
}
