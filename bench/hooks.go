//go:build linux

package bench

import (
	"context"
	"errors"

	"github.com/snapfs/snapfs/bench/hookload"
)

// hooks measures `snapfs hook`, which a coding agent runs around each call of a tool, on overlay and btrfs as root.
func (l *lab) hooks(ctx context.Context) (results []Result, err error) {
	for _, s := range l.settings() {
		if s.User == 0 && !s.Alone && s.Error == "" && err == nil {
			found, ferr := l.hooksOf(ctx, s)
			results, err = append(results, found...), ferr
		}
	}
	return results, err
}

func (l *lab) hooksOf(ctx context.Context, s setting) (results []Result, err error) {
	l.Say(s.Name + ": hooks of a coding agent")
	dir, giveBack, err := l.borrow(ctx, s, crowdFiles)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, giveBack()) }()
	defer func() { err = errors.Join(err, Clear(context.WithoutCancel(ctx), s.State)) }() // before its tree goes
	samples, err := hookload.Session{Program: l.Program, State: s.State, Backend: s.Driver, Dir: dir, Env: s.env()}.Measure(ctx, l.Rounds)
	for _, found := range samples {
		results = append(results, resultOf(Result{Kind: kindHooks, What: found.Name, Setting: s.Name, Files: crowdFiles}, found))
	}
	return results, err
}
