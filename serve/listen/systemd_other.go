//go:build !linux

package listen

import (
	"net"

	"github.com/snapfs/snapfs/errs"
)

func passedSocket() (net.Listener, error) { return nil, nil } //nolint:nilnil // there is no systemd

func peerUID(net.Conn) (uint32, error) { return 0, errs.ErrNotSupported }
