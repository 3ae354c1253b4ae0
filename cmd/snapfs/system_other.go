//go:build !linux

package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/errs"
)

// self is how this program is started again.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

func newPool(*app) *cobra.Command {
	return linuxOnly("pool", "manage pools: frozen bases on any host")
}

// linuxOnly is a command that says why it does nothing here.
func linuxOnly(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short + " (on Linux)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &errs.Error{Op: "snapfs " + name, Kind: errs.ErrNotSupported, Err: errors.New("needs Linux")}
		},
	}
}
