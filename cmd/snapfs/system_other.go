//go:build !linux

package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/errs"
)

// self returns a path by which this program can be started again: that of its file.
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

// linuxOnly returns a command of snapfs that on this system always fails, with the error that it needs Linux.
func linuxOnly(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short + " (on Linux)", DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return &errs.Error{Op: "snapfs " + name, Kind: errs.ErrNotSupported, Err: errors.New("needs Linux")}
		},
	}
}
