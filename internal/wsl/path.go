// Package wsl translates a Windows command line for the Windows Subsystem for Linux: file names of Windows
// become those of the Linux distribution, and back.
//
// It only computes texts, the same on every system, so that it can be tested on any.
package wsl

import (
	"fmt"
	"path"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// A Place says under which names Windows and a Linux distribution in it (WSL, the Windows Subsystem for
// Linux) see each other's files. By it, snapfs on Windows translates its command line for the Linux program.
type Place struct {
	// Distribution is the name of the distribution, or "" for the default one.
	Distribution string
	// Mount is the directory of the distribution in which Windows drives are mounted: /mnt,
	// unless its wsl.conf sets another ([automount] root).
	Mount string
}

// shares are the names of the network shares under which Windows shows the files of its Linux distributions
// (WSL).
var shares = [...]string{`wsl.localhost`, `wsl$`}

// linux translates a file name of Windows to the name of the same file in the Linux distribution (WSL). A
// relative name stays relative, with its backslashes replaced. Errors: ErrNotSupported with a hint, for a
// file on another machine, of another distribution, or relative to a drive's own directory.
func (p Place) linux(name string) (string, error) {
	turned := strings.ReplaceAll(name, `\`, "/")
	turned = strings.TrimPrefix(turned, "//?/") // a long name; of a share it goes on with UNC
	if rest, ok := strings.CutPrefix(turned, "UNC/"); ok && strings.HasPrefix(name, `\\?\`) {
		turned = "//" + rest
	}
	if drive, rest, ok := cutDrive(turned); ok {
		if !strings.HasPrefix(rest, "/") {
			return "", errs.New("", name, errs.ErrNotSupported, "what it means depends on the drive's own current directory", `cd, and name it as C:\directory\file`)
		}
		return path.Join(p.mount(), strings.ToLower(drive), rest), nil
	}
	if share, ok := strings.CutPrefix(turned, "//"); ok {
		return p.shared(name, share)
	}
	return turned, nil
}

// shared translates a path on a network share by which Windows shows the files of its Linux distributions,
// such as "wsl$/Debian/home", to the file's name in the distribution.
func (p Place) shared(name, share string) (string, error) {
	distribution, rest, ok := cutShare(share)
	if !ok {
		return "", errs.New("", name, errs.ErrNotSupported, "it is on another machine, and the distribution does not see it",
			fmt.Sprintf(`wsl sudo mount -t drvfs '%s' /mnt/share`, `\\`+strings.Join(first(strings.Split(share, "/"), 2), `\`)))
	}
	if p.Distribution != "" && !strings.EqualFold(distribution, p.Distribution) {
		return "", errs.New("", name, errs.ErrNotSupported,
			fmt.Sprintf("it belongs to the distribution %s, and %s is asked", distribution, p.Distribution),
			"set SNAPFS_WSL="+distribution)
	}
	return path.Join("/", rest), nil
}

// Windows translates an absolute file name of the Linux distribution (WSL) to the name under which Windows
// sees the file. A relative name stays relative, with its slashes replaced. It returns false if Windows has
// no name for the file.
func (p Place) Windows(name string) (string, bool) {
	if !strings.HasPrefix(name, "/") {
		return strings.ReplaceAll(name, "/", `\`), true
	}
	name = path.Clean(name)
	if rest, ok := strings.CutPrefix(name, p.mount()+"/"); ok {
		drive, rest, _ := strings.Cut(rest, "/")
		if len(drive) == 1 && isLetter(drive[0]) {
			return strings.ToUpper(drive) + `:\` + strings.ReplaceAll(rest, "/", `\`), true
		}
	}
	if p.Distribution == "" {
		return "", false
	}
	return `\\` + shares[0] + `\` + p.Distribution + strings.ReplaceAll(name, "/", `\`), true
}

func (p Place) mount() string {
	if p.Mount == "" {
		return "/mnt"
	}
	return path.Clean(p.Mount)
}

// DistributionOf returns the name of the Linux distribution in which a directory lies that is given in
// Windows syntax, or "" if it lies in none.
func DistributionOf(dir string) string {
	turned := strings.ReplaceAll(dir, `\`, "/")
	share, ok := strings.CutPrefix(turned, "//")
	if !ok {
		return ""
	}
	distribution, _, _ := cutShare(strings.TrimPrefix(share, "?/UNC/"))
	return distribution
}

func cutDrive(name string) (drive, rest string, ok bool) {
	if len(name) < 2 || name[1] != ':' || !isLetter(name[0]) {
		return "", "", false
	}
	return name[:1], name[2:], true
}

func cutShare(share string) (distribution, rest string, ok bool) {
	server, rest, _ := strings.Cut(share, "/")
	for _, s := range shares {
		if strings.EqualFold(server, s) {
			distribution, rest, _ = strings.Cut(rest, "/")
			return distribution, rest, distribution != ""
		}
	}
	return "", "", false
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func first(list []string, n int) []string { return list[:min(n, len(list))] }
