package baseline

import "strings"

// Absent reports whether the base had no file at a path for which the baseline stores no original. It concludes that
// from the originals of the parent directories: the nearest stored one was absent, was no directory, or is Created,
// that is, a promotion of the sandbox made the directory. Cost: each directory is looked up once until an entry is
// set, whatever its depth.
func (k *Baseline) Absent(path string) bool {
	absent := false
	end := len(path)
	for {
		end = strings.LastIndexByte(path[:end], '/')
		if end <= 0 {
			break
		}
		dir := path[:end]
		known, ok := k.absent[dir]
		if !ok {
			var n Entry
			if n, ok = k.Nodes[dir]; ok {
				known = n.Unknown == "" && (n.Node == nil || !n.Node.Mode.IsDir() || n.Created)
			}
		}
		if ok {
			absent = known
			break
		}
	}
	if k.absent == nil {
		k.absent = map[string]bool{}
	}
	for at := len(path); ; {
		at = strings.LastIndexByte(path[:at], '/')
		if at <= 0 || at < end {
			return absent
		}
		k.absent[path[:at]] = absent
	}
}

// Set stores n as the original, the state in the sandbox's base, of the file at an absolute path.
func (k *Baseline) Set(path string, n Entry) {
	k.Nodes[path], k.Changed, k.absent = n, true, nil
}

// Unset removes the stored original, the state in the sandbox's base, of the file at an absolute path.
func (k *Baseline) Unset(path string) {
	delete(k.Nodes, path)
	k.Changed, k.absent = true, nil
}
