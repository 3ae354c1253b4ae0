package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
)

// addLimits adds a flag for each limit of a sandbox, such as --memory, to f; the flag sets the field of l.
func addLimits(f *pflag.FlagSet, l *catalog.Limits) {
	for _, one := range l.Fields() {
		flag := f.VarPF(one.Value, one.Name, "", one.Usage)
		if one.Value.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// setLimits parses texts of the form NAME=VALUE and sets these limits in l. Errors are usage errors.
func setLimits(l *catalog.Limits, texts []string) error {
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return usageError(fmt.Errorf("%q is not NAME=VALUE, for example memory=4G or memory=none", text))
		}
		known, err := l.SetField(name, value)
		if err != nil {
			return usageError(err)
		}
		if !known {
			var names []string
			for _, one := range l.Fields() {
				names = append(names, one.Name)
			}
			return usageError(errors.New("no limit named " + pathlist.Printable(name) + "; the limits are " + strings.Join(names, ", ")))
		}
	}
	return nil
}

// describeLimits returns the limits that are set in l as text, each as on a command line: "memory 1G".
func describeLimits(l catalog.Limits) string {
	var list []string
	for _, one := range l.Fields() {
		if text := one.Value.String(); text != "" {
			list = append(list, one.Name+" "+text)
		}
	}
	return strings.Join(list, ", ")
}
