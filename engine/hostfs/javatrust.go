package hostfs

import (
	"os"
	"path/filepath"
	"slices"
)

// A Java program reads no bundle of PEM but the file cacerts of its runtime, which is covered inside like the bundles.

// javaTrustFile is the name of a file in a sandbox's directory: the CA certificates that the sandbox's Java programs
// trust, in the format JKS.
const javaTrustFile = "trust.jks"

// javaStores are patterns of the paths at which Java runtimes have the CA certificates that they trust.
var javaStores = [...]string{
	"/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts", "/usr/lib/jvm/*/lib/security/cacerts", "/usr/lib/jvm/*/jre/lib/security/cacerts",
	"/opt/java/*/lib/security/cacerts",
}

// javaPaths returns the paths of the certificates that this host's Java runtimes trust, each without symbolic links and
// once. The runtimes are those in the usual places, and that of JAVA_HOME.
func javaPaths() (paths []string) {
	patterns := javaStores[:]
	if home := os.Getenv("JAVA_HOME"); filepath.IsAbs(home) {
		patterns = append(slices.Clip(patterns), filepath.Join(home, "lib/security/cacerts"))
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern) // it fails only for an invalid pattern
		for _, p := range found {
			real, err := filepath.EvalSymlinks(p)
			if err == nil && !slices.Contains(paths, real) && !slices.ContainsFunc(replaced, func(dir string) bool { return Within(real, dir) }) {
				paths = append(paths, real)
			}
		}
	}
	return paths
}
