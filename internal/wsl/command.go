package wsl

import (
	"slices"
	"strings"
)

// PathFlags lists the flags of snapfs whose values are file names, which [Place.Command] translates from
// Windows to Linux.
var PathFlags = []string{
	"--allow", "--dir", "--e2b-key", "--earlier", "--evidence", "--expose", "--file", "--from", "--have", "--hide", "--html", "--key", "--mine", "--only", "--output",
	"--profile", "--report", "--socket", "--state", "--target", "--theirs", "--tls-cert", "--tls-key", "--workspace",
	"--write", "-C", "-o",
}

// ValueFlags lists the flags of snapfs whose values are no file names. The value may follow as
// a separate argument, and must not be translated to a Linux path.
var ValueFlags = []string{
	"--after", "--agent", "--as-branch", "--attempts", "--backend", "--base", "--check", "--class", "--close",
	"--cpu-time", "--cpus", "--deny", "--disk", "--effects", "--env", "--every", "--expires", "--files", "--format", "--group", "--host", "--idle", "--inodes",
	"--io-read", "--io-read-ops", "--io-write", "--io-write-ops", "--jobs", "--keep", "--keep-snapshots", "--keep-snapshots-for", "--keep-snapshots-size", "--listen", "--login", "--max-age", "--max-timeout", "--memory",
	"--message", "--name", "--net", "--pids", "--plan", "--pool", "--remove-after", "--scope", "--score", "--secret", "--set",
	"--size", "--snapshot-at", "--tail", "--template", "--time", "--timeout", "--to", "--tool", "--try", "--ttl", "--when-changed", "--within", "--witness", "--witness-key",
	"--witnesses", "-j", "-m",
	"-n",
}

// Command returns the arguments with which wsl.exe runs snapfs with args in the directory dir, both in
// Windows syntax. It translates file names in args up to "--"; the rest is the command for the sandbox and
// stays unchanged. Errors: *PathError.
func (p Place) Command(dir string, args []string) ([]string, error) {
	dir, err := p.linux(dir)
	if err != nil {
		return nil, err
	}
	list := append(p.distribution(), "--cd", dir, "--exec", "snapfs")
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return append(list, args[i:]...), nil
		case slices.Contains(ValueFlags, arg) && i+1 < len(args):
			list = append(list, arg, args[i+1])
			i++
			continue
		case slices.Contains(PathFlags, arg) && i+1 < len(args) && args[i+1] != "--": // run --evidence has no value
			list = append(list, arg)
			i++
			arg, err = p.linux(args[i])
		default:
			arg, err = p.argument(arg)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, arg)
	}
	return list, nil
}

// Probe returns the arguments with which wsl.exe tests, from Windows, whether program is installed in the
// Linux distribution.
func (p Place) Probe(program string) []string {
	return append(p.distribution(), "--exec", "sh", "-c", "command -v "+program)
}

func (p Place) distribution() []string {
	if p.Distribution == "" {
		return nil
	}
	return []string{"-d", p.Distribution}
}

// argument translates an argument of snapfs that is a file name of Windows, or a flag with a file name as its
// value, as in --dir=C:\work. Other arguments stay unchanged.
func (p Place) argument(arg string) (string, error) {
	if !strings.HasPrefix(arg, "-") {
		return p.linux(arg)
	}
	name, value, ok := strings.Cut(arg, "=")
	if !ok && len(arg) > 2 && arg[1] != '-' && slices.Contains(PathFlags, arg[:2]) { // -CC:\work
		name, value = arg[:2], arg[2:]
	} else if ok {
		name += "="
	}
	if !slices.Contains(PathFlags, strings.TrimSuffix(name, "=")) {
		return arg, nil
	}
	value, err := p.linux(value)
	return name + value, err
}
