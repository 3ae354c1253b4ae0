//go:build !linux

package cmdbroker

import "github.com/snapfs/snapfs/internal/vfs"

// A Broker executes guarded programs for the processes of one sandbox, on Linux.
type Broker struct{}

// Start would serve the stubs of guarded programs. On this system there are none: it returns an error with rules.
func Start(o Options) (*Broker, error) {
	if len(o.Rules) > 0 {
		return nil, vfs.ErrNeedsLinux
	}
	return nil, nil //nolint:nilnil // nothing is guarded
}

// Close does nothing.
func (*Broker) Close() error { return nil }
