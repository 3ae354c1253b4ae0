package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/internal/registry"
	"github.com/snapfs/snapfs/network"
)

// registries stores the key registries of [sandbox], a list of programs such as package managers whose servers may be
// reached, in r.sandbox. v is its value. It records mistakes in v at path, the key's path in the file.
func (r *reader) registries(name, path string, v any) {
	if r.site {
		r.wrong(path, name+": not a key of the site's policy", "list the servers in net")
		return
	}
	r.texts(name, path, v, func(text, path string) {
		if !slices.Contains(registry.Programs, text) {
			r.wrong(path, fmt.Sprintf("registries: no package manager %q", text), "use "+strings.Join(registry.Programs, ", "))
			return
		}
		r.sandbox.Registries = union(r.sandbox.Registries, []string{text})
		r.said("sandbox.registries", text, path)
	})
}

// Network returns the network setting of the profile: Net, extended by the servers (package registries) that
// the programs in Registries are set to use on this host. "" means that the profile sets neither.
//
// Cost and errors: those of [registry.Hosts] for each of these programs, which run on the host as this user,
// with the user's own settings.
func (s *Sandbox) Network(ctx context.Context, workspace string) (string, error) {
	if len(s.Registries) == 0 || s.Net == "host" {
		return s.Net, nil
	}
	var list []string
	if own, ok := strings.CutPrefix(s.Net, allowed); ok {
		list = append(list, own)
	}
	for _, program := range s.Registries {
		hosts, err := registry.Hosts(ctx, program, workspace)
		if err != nil {
			return "", err
		}
		list = append(list, hosts...)
	}
	if len(list) == 0 { // the programs are configured to fetch nothing
		return "none", nil
	}
	rules, err := network.Parse(strings.Join(list, ","))
	if err != nil {
		return "", err
	}
	return allowed + rules.String(), nil
}
