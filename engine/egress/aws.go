package egress

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/network"
)

// awsID is the variable with the access key id of AWS; [awsVariables] has the others.
const awsID = "AWS_ACCESS_KEY_ID"

// awsVariables returns the variables from which programs of AWS read keys, in the order of the fields of
// [network.AWSKeys], and older names of them. With a secret of AWS none passes into a sandbox.
func awsVariables() []string {
	return []string{awsID, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_PROFILE"}
}

// awsKeys returns the keys of AWS at source, which is as in [catalog.Secret.AWS], in JSON for the network proxy.
// Errors name the source, and have no key in them.
func awsKeys(source string) (string, error) {
	names := awsVariables()
	get := os.Getenv
	where := "the host's environment"
	if name, ok := strings.CutPrefix(source, catalog.AWSProfile); ok {
		path := os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
		if path == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", err
			}
			path = filepath.Join(home, ".aws", "credentials")
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		keys := profileOf(string(text), name)
		get = func(variable string) string { return keys[strings.ToLower(variable)] }
		where = "the profile " + name + " of " + path
	}
	k := network.AWSKeys{ID: get(names[0]), Key: get(names[1]), Token: get(names[2])}
	if k.ID == "" || k.Key == "" {
		return "", fmt.Errorf("%s has no %s and %s", where, names[0], names[1])
	}
	if len(k.ID)+len(k.Key)+len(k.Token) > maxField {
		return "", errors.New(where + " has keys of more than 16 KiB")
	}
	text, err := json.Marshal(k)
	return string(text), err
}

// profileOf returns the settings of the section name in text, a file of credentials of AWS, by their names in
// lower case.
func profileOf(text, name string) map[string]string {
	settings, here := map[string]string{}, false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if section, ok := strings.CutPrefix(line, "["); ok {
			section, _, _ = strings.Cut(section, "]")
			here = strings.TrimSpace(section) == name
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if here && ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			settings[strings.ToLower(strings.TrimSpace(key))] = strings.TrimSpace(value)
		}
	}
	return settings
}
