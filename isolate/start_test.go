//go:build linux

package isolate

import "context"

// Start prepares and starts a container of one spec.
func Start(ctx context.Context, spec Spec, command *Command) (*Container, *Process, error) {
	if err := spec.check(); err != nil {
		return nil, nil, err
	}
	b, err := Prepare(ctx, spec, command)
	if err != nil {
		return nil, nil, err
	}
	return b.Start(ctx, spec)
}
