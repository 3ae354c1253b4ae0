// Package javatrust writes CA certificates in the format in which a Java runtime has those that it trusts (JKS).
package javatrust

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"
)

// password is that of every Java runtime's cacerts. It keeps nothing secret.
const password = "changeit"

// Store returns the certificates in bundle, which are in PEM, in the format of a Java runtime's cacerts. It leaves
// out what is no certificate.
func Store(bundle []byte) ([]byte, error) {
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
	err := store.Store(&b, []byte(password))
	return b.Bytes(), err
}
