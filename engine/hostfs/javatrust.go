package hostfs

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
)

// A Java program reads no bundle of PEM but the file cacerts of its runtime, which is covered inside like the bundles.

// javaTrustFile is the name of a file in a sandbox's directory: the CA certificates that the sandbox's Java programs
// trust, in the format JKS.
const javaTrustFile = "trust.jks"

// javaPassword is the password of every Java runtime's cacerts. It keeps nothing secret.
const javaPassword = "changeit"

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

// javaStore returns the certificates in bundle, which are in PEM, in the format of a Java runtime's cacerts. It leaves
// out what is no certificate.
func javaStore(bundle []byte) ([]byte, error) {
	store := keystore.New()
	for n := 0; ; n++ {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		one := keystore.TrustedCertificateEntry{CreationTime: time.Unix(0, 0), Certificate: keystore.Certificate{Type: "X.509", Content: block.Bytes}}
		if err := store.SetTrustedCertificateEntry(fmt.Sprint("snapfs", n), one); err != nil {
			return nil, err
		}
	}
	var b bytes.Buffer
	err := store.Store(&b, []byte(javaPassword))
	return b.Bytes(), err
}
