//go:build !fusecow

package all

import "github.com/snapfs/snapfs/engine/snapshot"

func served() []snapshot.Driver { return nil }
